"""Real services for a test that plays the controller and the agents itself.

As the controller the test writes owner records; as the agents it starts slots and drivers. Start
with `opened` and `Lab`.
"""

import itertools
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, TypeVar

import psutil
import psycopg
import pytest

from sluice_ops.agent.units.commands import Installation, command, environment, resources_file
from sluice_ops.channel import access_lists
from sluice_ops.channel.client import Channel
from sluice_ops.local.services.zookeeper import make_chroot
from sluice_ops.model import paths
from sluice_ops.model.access import Role
from sluice_ops.model.assignment import HostFacts, Unit, UnitKind, driver_id, label_of, slot_id
from sluice_ops.model.ids import HostName, Incarnation, Tenant, TierName
from sluice_ops.model.incarnation import (
    IncarnationReport,
    IncarnationSpec,
    OwnerRecord,
    Phase,
    Placement,
    State,
)
from sluice_ops.model.tier import TierSpec
from sluice_ops.site import endpoints

ROOT = Path(__file__).resolve().parents[1]
HOSTS = {"h1": "127.0.1.1", "h2": "127.0.1.2", "h3": "127.0.1.3"}
DEADLINE_SECONDS = 240
"""The deadline of a wait. A driver is ready in 20 s on an idle machine, and later on a busy one."""
TAKEOVER_SECONDS = 0.5
"""The time from a kill until another incarnation owns the tier, in place of agent and controller.
"""
END_SECONDS = 20
"""The time that an interrupted command has to end."""
T = TypeVar("T")


def until(condition: str, check: Callable[[], T], seconds: float = DEADLINE_SECONDS) -> T:
    end = time.monotonic() + seconds
    while not (result := check()):
        assert time.monotonic() < end, f"after {seconds} s still not true: {condition}"
        time.sleep(0.1)
    return result


def run_command(
    module: str, *arguments: str, env: dict[str, str], cwd: Path = ROOT, stderr: IO[str] | None = None
) -> None:
    """Run a module to its end; fail if the module fails.

    The module is in a session of its own, so a terminal's Ctrl-C reaches only this process, which
    then lets the module end what the module has started.
    """
    command = [sys.executable, "-m", module, *arguments]
    with subprocess.Popen(command, env=env, cwd=cwd, stderr=stderr, start_new_session=True) as process:
        try:
            code = process.wait()
        except BaseException:
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=END_SECONDS)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    if code:
        raise subprocess.CalledProcessError(code, command)


PORT_BASES = range(21600, 21990, 10)


def free_base() -> int:
    """Return the first of ten ports that are free.

    The choice is random, because another test may look for ports at the same time.
    """
    for base in random.sample(PORT_BASES, len(PORT_BASES)):
        sockets = [socket.socket() for _ in range(9)]
        try:
            for number, sock in enumerate(sockets, start=1):
                sock.bind(("127.0.0.1", base + number))
        except OSError:
            continue
        finally:
            for sock in sockets:
                sock.close()
        return base
    pytest.fail("no ten free ports in a row between 21600 and 21990")


def free_ports(count: int) -> list[int]:
    """Return ports that are free now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for sock in sockets:
            sock.bind(("127.0.0.1", 0))
        return [sock.getsockname()[1] for sock in sockets]
    finally:
        for sock in sockets:
            sock.close()


@dataclass
class Lab:
    """A home with real services, and the processes that a test has started: incarnations and a
    feed.
    """

    home: Path
    env: dict[str, str]
    endpoints: endpoints.Endpoints
    channel: Channel
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    slot_env: dict[str, str] = field(default_factory=dict)
    """More environment variables for slots; a Worker passes its environment on to its executor."""
    epochs: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def write_class_data(self, pipeline: str | None = None) -> None:
        """Create the class data archive, so that the next starts of JVMs are as fast as on a
        platform.

        `pipeline` has the tiers whose queries run for it, by default all tiers of the lab.
        """
        env = self.env
        if pipeline is not None:
            site = self.home / "class-data.yaml"
            site.write_text(f"pipeline: {pipeline}\nreplication: 1\nhosts: []\n")
            env = {**env, "SLUICE_SITE": str(site)}
        with (self.home / "class-data.log").open("w") as log:
            run_command("sluice.commands.class_data", env=env, stderr=log)

    # -- what the agent does

    def start(
        self,
        tier: str,
        number: int,
        host: str,
        slots: int = 1,
        *,
        zookeeper: str | None = None,
        code: Path = ROOT,
        **more: Any,
    ) -> None:
        """Start an incarnation's slots and driver on a host.

        `zookeeper` is another address for this incarnation alone; `code` is the checkout that the
        incarnation runs.
        """
        place = Placement(driver=HostName(host), slots=(HostName(host),) * slots)
        spec = IncarnationSpec(
            tier=TierName(tier),
            incarnation=Incarnation(number),
            placement=place,
            reason="test",
            created_at=time.time(),
            **more,
        )
        self.channel.put(paths.incarnation(tier, number), spec)
        self._start_units(tier, number, host, range(slots), driver=True, zookeeper=zookeeper, code=code)

    def add_slot(self, tier: str, number: int, host: str, index: int) -> None:
        """Start one more slot of an incarnation that runs."""
        self._start_units(tier, number, host, range(index, index + 1))

    def _start_units(
        self,
        tier: str,
        number: int,
        host: str,
        slots: Iterable[int],
        *,
        driver: bool = False,
        zookeeper: str | None = None,
        code: Path = ROOT,
    ) -> None:
        read = self.channel.read(paths.tier(tier), TierSpec)
        assert read is not None
        facts = HostFacts(name=HostName(host), address=HOSTS[host], zone="onprem", cpu=8, memory=8192)
        installation = Installation(
            self.home,
            self.home,
            self._endpoints(f"{tier}-{number}", zookeeper),
            Path(self.env["SLUICE_SITE"]),
            self.endpoints.spark,
            self.endpoints.spark_secret,
            facts,
        )
        units = [(UnitKind.SLOT, slot_id(tier, number, index), read.value.quantum) for index in slots]
        if driver:
            units.append((UnitKind.DRIVER, driver_id(tier, number), read.value.driver))
        for kind, identity, quantum in units:
            unit = Unit(
                id=identity,
                kind=kind,
                tenant=Tenant(tier),
                incarnation=Incarnation(number),
                quantum=quantum,
                label=label_of(tier, number),
            )
            scratch = self.home / "units" / identity
            scratch.mkdir(parents=True)
            (scratch / "resources.json").write_text(str(resources_file(unit)).replace("'", '"'))
            with (scratch / "log").open("wb") as log:
                self.processes[identity] = subprocess.Popen(
                    command(unit, scratch, installation),
                    env=environment(unit, scratch, installation, self.env)
                    | self._more_environment(kind, code),
                    cwd=code,
                    stdout=log,
                    stderr=log,
                )

    def _more_environment(self, kind: UnitKind, code: Path) -> dict[str, str]:
        return {
            "PYTHONPATH": f"{code}/ops:{code}/pipeline:{ROOT}",
            **(self.slot_env if kind is UnitKind.SLOT else {}),
        }

    def _endpoints(self, name: str, zookeeper: str | None) -> Path:
        file = self.home / "endpoints.json"
        if zookeeper is None:
            return file
        own = self.home / f"endpoints-{name}.json"
        own.write_text(json.dumps({**json.loads(file.read_text()), "zookeeper": zookeeper}))
        return own

    def driver(self, tier: str, number: int) -> subprocess.Popen[bytes]:
        return self.processes[driver_id(tier, number)]

    def log(self, tier: str, number: int) -> str:
        return (self.home / "units" / driver_id(tier, number) / "log").read_text()

    def kill_executor(self, tier: str, number: int) -> None:
        """Wait until the slot has an executor, and kill it."""
        slot = psutil.Process(self.processes[slot_id(tier, number, 0)].pid)
        for child in until(f"{tier}/{number} has an executor", slot.children):
            with suppress(psutil.NoSuchProcess):
                child.kill()

    def stop(self, tier: str, number: int) -> None:
        """End the remaining processes of an incarnation."""
        slots = [identity for identity in self.processes if identity.startswith(f"slot-{tier}-{number}-")]
        for identity in (driver_id(tier, number), *slots):
            process = self.processes.pop(identity, None)
            if process is None:
                continue
            process.terminate()
            try:
                process.wait(timeout=40)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def stop_all(self) -> None:
        """End the processes of all incarnations."""
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(timeout=40)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    # -- what the controller does

    def set_owner(
        self, tier: str, owner: int, following: int | None = None, phase: Phase = Phase.STEADY, **more: Any
    ) -> None:
        record = OwnerRecord(owner=owner, next=following, phase=phase, epoch=next(self.epochs), **more)
        self.channel.put(paths.owner(tier), record)

    def prepare(self, tier: str, owner: int, following: int, host: str, **more: Any) -> None:
        """Start the next incarnation on a host, and wait until it is ready."""
        self.set_owner(tier, owner, following, Phase.PREPARE)
        self.start(tier, following, host, **more)
        self.wait_for(tier, following, State.READY)

    def cut(self, tier: str, owner: int, following: int, host: str, **more: Any) -> None:
        """Prepare the next incarnation on a host, and let it take over."""
        self.prepare(tier, owner, following, host, **more)
        self.set_owner(tier, owner, following, Phase.CUT)

    def hand_over(self, tier: str, owner: int, following: int) -> None:
        """Let a prepared incarnation take over, and end the owner when it has stopped."""
        self.set_owner(tier, owner, following, Phase.CUT)
        self.wait_caught_up(tier, following)
        self.set_owner(tier, following)
        self.wait_for(tier, owner, State.STOPPED)
        self.stop(tier, owner)

    def start_standby(self, tier: str, owner: int, standby: int, host: str, *, hot: bool) -> None:
        """Start a standby on a host.

        Wait until a hot standby has caught up, or a warm one is ready.
        """
        self.set_owner(tier, owner, standby=standby, standby_runs=hot)
        self.start(tier, standby, host)
        if hot:
            self.wait_caught_up(tier, standby)
        else:
            self.wait_for(tier, standby, State.READY)

    def report(self, tier: str, number: int) -> IncarnationReport | None:
        versioned = self.channel.read(paths.report(tier, number), IncarnationReport)
        return None if versioned is None else versioned.value

    def wait_for(self, tier: str, number: int, state: State) -> IncarnationReport:
        def report_in_state() -> IncarnationReport | None:
            report = self.report(tier, number)
            if (
                report is not None
                and report.state in {State.FAILED, State.FENCED}
                and report.state is not state
            ):
                pytest.fail(
                    f"{tier}/{number} {report.state}: {report.error}\n{self.log(tier, number)[-3000:]}"
                )
            return report if report is not None and report.state is state else None

        return until(f"{tier}/{number} is {state}", report_in_state)

    def wait_caught_up(self, tier: str, number: int) -> None:
        until(
            f"{tier}/{number} has caught up",
            lambda: (report := self.report(tier, number)) is not None and report.caught_up,
        )

    def start_owner(self, tier: str, number: int, host: str, slots: int = 1, **more: Any) -> None:
        """Start an incarnation as the owner of its tier."""
        self.set_owner(tier, number)
        self.start(tier, number, host, slots, **more)

    # -- input and output

    def start_feed(self, rate: int) -> None:
        """Send `rate` hits a second, numbered from 1, until `stop_feed` or the end of the lab."""
        words = [sys.executable, "-m", "hits.feed", "--rate", str(rate), "--first", "1", "--json"]
        self.processes["feed"] = subprocess.Popen(words, env=self.env, cwd=ROOT, stdout=subprocess.PIPE)

    def stop_feed(self) -> int:
        """End the feed; return the number of hits that it sent."""
        feed = self.processes.pop("feed")
        feed.send_signal(signal.SIGINT)
        return int(json.loads(feed.communicate(timeout=60)[0])["count"])

    def query(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.endpoints.postgres) as connection:
            return connection.execute(query.encode()).fetchall()

    def delivered(self) -> tuple[int, int]:
        rows, ids = self.query("select count(*), count(distinct id) from delivered")[0]
        return int(rows), int(ids)


VALIDATED: dict[str | None, str] = {}
"""The validation note of each valid pipeline: the next home skips the trial of its transforms."""


def kill_services(home: Path) -> None:
    """Kill a home's services.

    A JVM that is terminated would first write its class data for the next start, which these
    services do not have.
    """
    with suppress(FileNotFoundError, psutil.NoSuchProcess):
        supervisord = psutil.Process(int((home / "run" / "supervisord.pid").read_text()))
        services = supervisord.children()
        supervisord.kill()  # first, or supervisord would restart its children
        for process in services:
            with suppress(psutil.NoSuchProcess):
                if process.name() == "java":
                    process.kill()
                else:
                    process.send_signal(
                        signal.SIGINT
                    )  # PostgreSQL's fast shutdown; a killed server would leave shared memory behind
        psutil.wait_procs(services, timeout=20)


def _make_tree(file: Path, servers: str) -> None:
    """Write the servers' addresses into the endpoints file, and create the pipeline's tree there.

    The platform does the same for servers of its own.
    """
    settings = json.loads(file.read_text())
    chroot = settings["zookeeper"].partition("/")[2]
    file.write_text(json.dumps({**settings, "zookeeper": f"{servers}/{chroot}"}))
    where = endpoints.Endpoints.model_validate_json(file.read_text())
    make_chroot(servers, f"/{chroot}")
    with Channel(where.zookeeper, where.credential(Role.ADMIN)) as channel:
        access_lists.apply(channel.kazoo)


@contextmanager
def opened(
    home: Path,
    pipeline: str | None = None,
    more: str = "hosts: []\n",
    *,
    partitions: int = 4,
    kafka: str | None = None,
    zookeeper: str | None = None,
    code: Path = ROOT,
) -> Iterator[Lab]:
    """Start services in `home` and publish a pipeline, by default the shipped one; remove both at
    the end.

    `more` is the rest of the site file. `kafka` and `zookeeper` are addresses of servers that the
    test has started itself. `code` is the folder with the pipeline's package.
    """
    site = home / "site.yaml"
    replication = "" if "replication:" in more else "replication: 1\n"
    lineage = "" if "packed_lineage:" in more else "packed_lineage: true\n"
    own_site = f"pipeline: {pipeline}\n{replication}{lineage}partitions: {partitions}\n{more}"
    site.write_text((ROOT / "site.yaml").read_text() if pipeline is None else own_site)
    env = {
        **os.environ,
        "SLUICE_HOME": str(home),
        "SLUICE_PORT_BASE": str(free_base()),
        "SLUICE_SITE": str(site),
    }
    env.pop("SLUICE_ENDPOINTS", None)
    services = "sluice_ops.local.parts"
    try:
        parts = [*([] if zookeeper else ["zookeeper"]), *([] if kafka else ["kafka"]), "postgres", "spark"]
        run_command(services, "up", "--only", ",".join(parts), env=env)
        file = home / "endpoints.json"
        if kafka is not None:
            run_command(services, "jars", env=env)
            file.write_text(json.dumps({**json.loads(file.read_text()), "kafka": kafka}))
        if zookeeper is not None:
            _make_tree(file, zookeeper)
        note = home / "validated.json"
        if pipeline in VALIDATED:
            note.write_text(VALIDATED[pipeline])
        run_command("sluice.commands.publish", env=env, cwd=code)
        VALIDATED[pipeline] = note.read_text()
        where = endpoints.Endpoints.model_validate_json((home / "endpoints.json").read_text())
        with Channel(where.zookeeper, where.credential(Role.ADMIN)) as channel:
            lab = Lab(home, env, where, channel)
            try:
                yield lab
            finally:
                lab.stop_all()
    finally:
        kill_services(home)
        with suppress(subprocess.CalledProcessError):
            run_command(services, "down", env=env)
