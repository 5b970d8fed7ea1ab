"""`python -m sluice_ops.local.simulation.agents`: the agents of many hosts in one process.

A session serves several hosts, because each session costs three Python threads. A host has the
same nodes and watches in ZooKeeper as a real one: its facts, its ephemeral node, its assignment and
its observations. Assigned units count as running at once, and drivers report that they run. For
each assignment, the process prints a line of JSON with the time at which ZooKeeper stored it.
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
_printing = threading.Lock()


def report(line: dict[str, object]) -> None:
    """Print a line of JSON for the measuring process."""
    with _printing:
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


def _encoded(value: BaseModel) -> bytes:
    return value.model_dump_json(exclude_defaults=True).encode()


class Session:
    """One connection for the agents of several hosts.

    After `register`, everything happens in kazoo's threads and never blocks.
    """

    def __init__(self, address: str, size: Size, numbers: range) -> None:
        """Connect; `numbers` are the numbers of the hosts."""
        self._client = KazooClient(hosts=address, timeout=SESSION_SECONDS)
        self._client.start_async()
        self._facts = [facts(size, number) for number in numbers]
        self._started = time.time()
        self._units: dict[HostName, dict[str, UnitObserved]] = {}

    def register(self) -> None:
        """Create the nodes of all hosts; all requests are sent before the first response."""
        if not self._client.connected and not self._client.start(CONNECT_SECONDS):
            message = "ZooKeeper accepts no more sessions"
            raise ConnectionError(message)
        requests = []
        for host in self._facts:
            live = Live(
                address=host.address,
                pid=os.getpid(),
                boot="simulated",
                home=Path("/simulated"),
                since=self._started,
            )
            requests.append(self._client.create_async(paths.host(host.name), _encoded(host)))
            requests.append(self._client.create_async(paths.live(host.name), _encoded(live), ephemeral=True))
            requests.append(
                self._client.create_async(
                    paths.observed(host.name), _encoded(self._observed(host.name, Assignment()))
                )
            )
        for request in requests:
            request.get(timeout=CONNECT_SECONDS)
        for host in self._facts:
            self._units[host.name] = {}
            self._client.exists_async(paths.live(host.name), watch=partial(self._forget_lost, host.name))
            self._read_assignment(host.name)

    def _forget_lost(self, host: HostName, event: WatchedEvent) -> None:
        """Stop simulating a host whose ephemeral node was deleted: it is lost."""
        if event.type == EventType.DELETED:
            self._units.pop(host, None)

    def _read_assignment(self, host: HostName, _event: WatchedEvent | None = None) -> None:
        path = paths.assignment(host)
        request = self._client.get_async(path, watch=partial(self._read_assignment, host))
        request.rawlink(partial(self._on_assignment, host))

    def _on_assignment(self, host: HostName, result: IAsyncResult) -> None:
        if isinstance(result.exception, NoNodeError):
            path = paths.assignment(host)
            request = self._client.exists_async(path, watch=partial(self._read_assignment, host))
            request.rawlink(partial(self._on_existence, host))
        elif result.exception is not None:
            self._read_assignment(host)  # the connection was lost during the request
        else:
            data, stat = result.value
            assignment, at = Assignment.model_validate_json(data), stat.mtime / 1000
            if host in self._units:
                self._run(host, assignment, at)
            # also report the assignment of a host that was lost a moment ago: it was published
            report(
                {
                    "host": host,
                    "at": at,
                    "units": [[unit.id, unit.tenant, unit.incarnation] for unit in assignment.units],
                }
            )

    def _on_existence(self, host: HostName, result: IAsyncResult) -> None:
        """Read the assignment again if it exists now, or if the connection was lost.

        Otherwise, the watch for its creation is set.
        """
        if result.exception is not None or result.value is not None:
            self._read_assignment(host)

    def _run(self, host: HostName, assignment: Assignment, at: float) -> None:
        before = self._units.get(host, {})
        for unit in assignment.units:
            if unit.kind is UnitKind.DRIVER and unit.id not in before:
                running = IncarnationReport(
                    state=State.RUNNING,
                    since=at,
                    pid=1,
                    caught_up=True,
                    measured=True,
                    history=((State.RUNNING, at),),
                )
                self._client.create_async(paths.report(unit.tenant, unit.incarnation), _encoded(running))
        self._units[host] = {
            unit.id: before.get(unit.id) or UnitObserved(id=unit.id, state=UnitState.RUNNING, pid=1, since=at)
            for unit in assignment.units
        }
        self._client.set_async(paths.observed(host), _encoded(self._observed(host, assignment)))

    def _observed(self, host: HostName, assignment: Assignment) -> Observed:
        units = tuple(self._units.get(host, {}).values())
        return Observed(epoch=assignment.epoch, units=units, agent_started=self._started, limits="simulated")


def main() -> int:
    """Register all hosts, then follow their assignments until SIGTERM."""
    parser = argparse.ArgumentParser(prog="sluice_ops.local.simulation.agents", description=__doc__)
    parser.add_argument("--zookeeper", required=True, help="host:port/chroot")
    parser.add_argument("--hosts", type=int, required=True)
    parser.add_argument("--slots", type=int, required=True)
    parser.add_argument("--sessions", type=int, required=True)
    options = parser.parse_args()
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)  # ZooKeeper is killed at the end
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
                report({"registered": min(size.hosts, done * size.hosts // count)})
    except (KazooException, ConnectionError) as error:
        sys.stderr.write(f"the simulated agents could not register in ZooKeeper: {error!r}\n")
        return 1
    ended.wait()
    return 0


if __name__ == "__main__":
    status = main()
    os._exit(status)  # do not close hundreds of sessions one by one: ZooKeeper ends, too
