"""`python -m sluice_ops.local.simulation.agents`: agents of many hosts in one process, holding in the channel what real ones hold.

Each session stands for several hosts, for a session costs a process of Python three threads. A host has its facts, its ephemeral node
with a watch, a watch on its assignment, and what it observes; what is assigned to it counts as running at once. A driver says that
it runs. Each assignment that arrives is told on standard output, one line of JSON, with the time at which ZooKeeper took it.
"""

import argparse
import json
import logging
import os
import signal
import sys
import threading
import time
import warnings
from functools import partial
from pathlib import Path

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.interfaces import IAsyncResult
from kazoo.protocol.states import EventType, WatchedEvent
from pydantic import BaseModel

from sluice_ops.agent.host.presence import Live
from sluice_ops.channel.client import SESSION_SECONDS
from sluice_ops.local.simulation.cluster import Size, facts
from sluice_ops.model import paths
from sluice_ops.model.assignment import Assignment, Observed, UnitKind, UnitObserved, UnitState
from sluice_ops.model.ids import HostName
from sluice_ops.model.incarnation import IncarnationReport, State

CONNECT_SECONDS = 60.0
_telling = threading.Lock()


def tell(line: dict[str, object]) -> None:
    """Say something to the process that measures."""
    with _telling:
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


def _written(value: BaseModel) -> bytes:
    return value.model_dump_json(exclude_defaults=True).encode()


class Session:
    """One connection that stands for the agents of some hosts. Everything after `register` happens in kazoo's threads and never blocks."""

    def __init__(self, address: str, size: Size, numbers: range) -> None:
        """Connect."""
        self._client = KazooClient(hosts=address, timeout=SESSION_SECONDS)
        self._client.start_async()
        self._facts = [facts(size, number) for number in numbers]
        self._started = time.time()
        self._seen: dict[HostName, dict[str, UnitObserved]] = {}

    def register(self) -> None:
        """Make the nodes of all hosts, the requests of all of them under way at once."""
        if not self._client.connected and not self._client.start(CONNECT_SECONDS):
            message = "ZooKeeper takes no more sessions"
            raise ConnectionError(message)
        made = []
        for host in self._facts:
            live = Live(
                address=host.address,
                pid=os.getpid(),
                boot="simulated",
                home=Path("/simulated"),
                since=self._started,
            )
            made.append(self._client.create_async(paths.host(host.name), _written(host)))
            made.append(self._client.create_async(paths.live(host.name), _written(live), ephemeral=True))
            made.append(
                self._client.create_async(
                    paths.observed(host.name), _written(self._observed(host.name, Assignment()))
                )
            )
        for each in made:
            each.get(timeout=CONNECT_SECONDS)
        for host in self._facts:
            self._seen[host.name] = {}
            self._client.exists_async(paths.live(host.name), watch=partial(self._die, host.name))
            self._look(host.name)

    def _die(self, host: HostName, event: WatchedEvent) -> None:
        """Do nothing more for a host whose ephemeral node was taken away: it is lost."""
        if event.type == EventType.DELETED:
            self._seen.pop(host, None)

    def _look(self, host: HostName, _event: WatchedEvent | None = None) -> None:
        path = paths.assignment(host)
        self._client.get_async(path, watch=partial(self._look, host)).rawlink(partial(self._take, host))

    def _take(self, host: HostName, answer: IAsyncResult) -> None:
        if isinstance(answer.exception, NoNodeError):
            path = paths.assignment(host)
            self._client.exists_async(path, watch=partial(self._look, host)).rawlink(
                partial(self._made, host)
            )
        elif answer.exception is not None:
            self._look(host)  # the connection was lost under it
        else:
            data, stat = answer.value
            assignment, at = Assignment.model_validate_json(data), stat.mtime / 1000
            if host in self._seen:
                self._run(host, assignment, at)
            # a host that was lost a moment ago does nothing with it, but it was published
            tell(
                {
                    "host": host,
                    "at": at,
                    "units": [[unit.id, unit.tenant, unit.incarnation] for unit in assignment.units],
                }
            )

    def _made(self, host: HostName, found: IAsyncResult) -> None:
        """Look again when the assignment was made in between, for then no watch was set on its absence, or when the connection was lost."""
        if found.exception is not None or found.value is not None:
            self._look(host)

    def _run(self, host: HostName, assignment: Assignment, at: float) -> None:
        before = self._seen.get(host, {})
        for unit in assignment.units:
            if unit.kind is UnitKind.DRIVER and unit.id not in before:
                report = IncarnationReport(
                    state=State.RUNNING,
                    since=at,
                    pid=1,
                    caught_up=True,
                    measured=True,
                    history=((State.RUNNING, at),),
                )
                self._client.create_async(paths.report(unit.tenant, unit.incarnation), _written(report))
        self._seen[host] = {
            unit.id: before.get(unit.id) or UnitObserved(id=unit.id, state=UnitState.RUNNING, pid=1, since=at)
            for unit in assignment.units
        }
        self._client.set_async(paths.observed(host), _written(self._observed(host, assignment)))

    def _observed(self, host: HostName, assignment: Assignment) -> Observed:
        units = tuple(self._seen.get(host, {}).values())
        return Observed(epoch=assignment.epoch, units=units, agent_started=self._started, limits="simulated")


def main() -> int:
    """Register all hosts, then follow until SIGTERM."""
    parser = argparse.ArgumentParser(prog="sluice_ops.local.simulation.agents", description=__doc__)
    parser.add_argument("--zookeeper", required=True, help="host:port/chroot")
    parser.add_argument("--hosts", type=int, required=True)
    parser.add_argument("--slots", type=int, required=True)
    parser.add_argument("--sessions", type=int, required=True)
    options = parser.parse_args()
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)  # its process dies with the measurement
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    size, count = Size(options.hosts, options.slots), options.sessions
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            sessions = [
                Session(options.zookeeper, size, range(number, size.hosts, count)) for number in range(count)
            ]
            for done, session in enumerate(sessions, start=1):
                session.register()
                tell({"registered": min(size.hosts, done * size.hosts // count)})
    except (KazooException, ConnectionError) as error:
        sys.stderr.write(f"the simulated agents cannot register: {error!r}\n")
        return 1
    ended.wait()
    return 0


if __name__ == "__main__":
    status = main()
    os._exit(status)  # hundreds of connections are not taken leave of one by one: their server ends too
