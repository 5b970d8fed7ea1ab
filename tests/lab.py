"""The real services, and the two parts that a test plays itself: the controller (owner records) and the agents (slots and drivers)."""

import itertools
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

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
SECONDS = 240
"""A driver is ready in 20 s on a machine of its own; one that does much else may take its time."""
SEEN_SECONDS = 0.5
"""So long after a kill another incarnation owns the tier: what its agent and the controller take."""
T = TypeVar("T")


def until(what: str, check: Callable[[], T], seconds: float = SECONDS) -> T:
    end = time.monotonic() + seconds
    while not (found := check()):
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.1)
    return found


STRETCHES = range(21600, 21990, 10)


def free_base() -> int:
    """Find a stretch of ten ports that are free; by chance, for others may look for one at the same time."""
    for base in random.sample(STRETCHES, len(STRETCHES)):
        sockets = [socket.socket() for _ in range(9)]
        try:
            for number, each in enumerate(sockets, start=1):
                each.bind(("127.0.0.1", base + number))
        except OSError:
            continue
        finally:
            for each in sockets:
                each.close()
        return base
    pytest.fail("no ten free ports between 21600 and 21990")


def free_ports(count: int) -> list[int]:
    """Find ports that are free now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


@dataclass
class Lab:
    """One home with real services, and what a test has started: incarnations, and a feed."""

    home: Path
    env: dict[str, str]
    where: endpoints.Endpoints
    channel: Channel
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    of_slots: dict[str, str] = field(default_factory=dict)
    """What the environment of slots has besides: a Worker hands it on to its executor."""
    epochs: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def keep_class_data(self) -> None:
        """Have the JVMs of tiers start as on a platform, from the second start on."""
        subprocess.run(
            [sys.executable, "-m", "sluice.commands.class_data"], env=self.env, cwd=ROOT, check=True
        )

    # -- the agent's part

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

        It reaches ZooKeeper at an address of its own, and runs `code` of another version, where these are named.
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
        read = self.channel.read(paths.tier(tier), TierSpec)
        assert read is not None
        facts = HostFacts(name=HostName(host), address=HOSTS[host], zone="onprem", cpu=8, memory=8192)
        installation = Installation(
            self.home,
            self.home,
            self._endpoints(f"{tier}-{number}", zookeeper),
            Path(self.env["SLUICE_SITE"]),
            self.where.spark,
            self.where.spark_secret,
            facts,
        )
        units = [(UnitKind.SLOT, slot_id(tier, number, each), read.value.quantum) for each in range(slots)]
        for kind, identity, quantum in (
            *units,
            (UnitKind.DRIVER, driver_id(tier, number), read.value.driver),
        ):
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
                self.running[identity] = subprocess.Popen(
                    command(unit, scratch, installation),
                    env=environment(unit, scratch, installation, self.env) | self._around(kind, code),
                    cwd=code,
                    stdout=log,
                    stderr=log,
                )

    def _around(self, kind: UnitKind, code: Path) -> dict[str, str]:
        return {
            "PYTHONPATH": f"{code}/ops:{code}/pipeline:{ROOT}",
            **(self.of_slots if kind is UnitKind.SLOT else {}),
        }

    def _endpoints(self, name: str, zookeeper: str | None) -> Path:
        file = self.home / "endpoints.json"
        if zookeeper is None:
            return file
        own = self.home / f"endpoints-{name}.json"
        own.write_text(json.dumps({**json.loads(file.read_text()), "zookeeper": zookeeper}))
        return own

    def driver(self, tier: str, number: int) -> subprocess.Popen[bytes]:
        return self.running[driver_id(tier, number)]

    def log(self, tier: str, number: int) -> str:
        return (self.home / "units" / driver_id(tier, number) / "log").read_text()

    def kill_executor(self, tier: str, number: int) -> None:
        """Kill the executor in the slot, once there is one."""
        slot = psutil.Process(self.running[slot_id(tier, number, 0)].pid)
        for child in until(f"{tier}/{number} has an executor", slot.children):
            with suppress(psutil.NoSuchProcess):
                child.kill()

    def retire(self, tier: str, number: int) -> None:
        """End what is left of an incarnation."""
        slots = [identity for identity in self.running if identity.startswith(f"slot-{tier}-{number}-")]
        for identity in (driver_id(tier, number), *slots):
            process = self.running.pop(identity, None)
            if process is None:
                continue
            process.terminate()
            try:
                process.wait(timeout=40)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def end(self) -> None:
        """End every incarnation."""
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            try:
                process.wait(timeout=40)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    # -- the controller's part

    def own(
        self, tier: str, owner: int, following: int | None = None, phase: Phase = Phase.STEADY, **more: Any
    ) -> None:
        record = OwnerRecord(owner=owner, next=following, phase=phase, epoch=next(self.epochs), **more)
        self.channel.put(paths.owner(tier), record)

    def prepare(self, tier: str, owner: int, following: int, host: str, **more: Any) -> None:
        """Have the next incarnation ready on a host."""
        self.own(tier, owner, following, Phase.PREPARE)
        self.start(tier, following, host, **more)
        self.wait(tier, following, State.READY)

    def cut(self, tier: str, owner: int, following: int, host: str, **more: Any) -> None:
        """Prepare the next incarnation on a host, and let it take over."""
        self.prepare(tier, owner, following, host, **more)
        self.own(tier, owner, following, Phase.CUT)

    def stand_by(self, tier: str, owner: int, standby: int, host: str, *, hot: bool) -> None:
        """Have a standby on a host that runs beside the owner, or is ready."""
        self.own(tier, owner, standby=standby, standby_runs=hot)
        self.start(tier, standby, host)
        if hot:
            self.caught_up(tier, standby)
        else:
            self.wait(tier, standby, State.READY)

    def report(self, tier: str, number: int) -> IncarnationReport | None:
        found = self.channel.read(paths.report(tier, number), IncarnationReport)
        return None if found is None else found.value

    def wait(self, tier: str, number: int, state: State) -> IncarnationReport:
        def there() -> IncarnationReport | None:
            said = self.report(tier, number)
            if said is not None and said.state in {State.FAILED, State.FENCED} and said.state is not state:
                pytest.fail(f"{tier}/{number} {said.state}: {said.error}\n{self.log(tier, number)[-3000:]}")
            return said if said is not None and said.state is state else None

        return until(f"{tier}/{number} is {state}", there)

    def caught_up(self, tier: str, number: int) -> None:
        until(
            f"{tier}/{number} has caught up",
            lambda: (said := self.report(tier, number)) is not None and said.caught_up,
        )

    def cold(self, tier: str, number: int, host: str, slots: int = 1, **more: Any) -> None:
        """Start an incarnation that owns its tier from the start."""
        self.own(tier, number)
        self.start(tier, number, host, slots, **more)

    # -- what goes in, and what came of it

    def feed(self, rate: int) -> None:
        """Feed hits from number 1 on, so many in a second, until `fed`; at the latest it ends with the lab."""
        words = [sys.executable, "-m", "hits.feed", "--rate", str(rate), "--first", "1", "--json"]
        self.running["feed"] = subprocess.Popen(words, env=self.env, cwd=ROOT, stdout=subprocess.PIPE)

    def fed(self) -> int:
        """End the feed; return how many hits there were."""
        feed = self.running.pop("feed")
        feed.send_signal(signal.SIGINT)
        return int(json.loads(feed.communicate(timeout=60)[0])["count"])

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.where.postgres) as connection:
            return connection.execute(query.encode()).fetchall()

    def delivered(self) -> tuple[int, int]:
        rows, ids = self.ask("select count(*), count(distinct id) from delivered")[0]
        return int(rows), int(ids)


VALIDATED: dict[str | None, str] = {}
"""What was noted of each pipeline that was found valid: the next home of it need not try its transforms again."""


def kill_services(home: Path) -> None:
    """End a home's services at once: told to end, a JVM first keeps its class data for a next start, which these have not."""
    with suppress(FileNotFoundError, psutil.NoSuchProcess):
        supervisord = psutil.Process(int((home / "run" / "supervisord.pid").read_text()))
        services = supervisord.children()
        supervisord.kill()  # it first, or it would start them again
        for process in services:
            with suppress(psutil.NoSuchProcess):
                if process.name() == "java":
                    process.kill()
                else:
                    process.send_signal(
                        signal.SIGINT
                    )  # PostgreSQL's word for soon; killed, it would leave shared memory behind
        psutil.wait_procs(services, timeout=20)


def _make_tree(file: Path, servers: str) -> None:
    """Have the endpoints file name these servers, and make the pipeline's tree there, as the platform does on its own."""
    said = json.loads(file.read_text())
    chroot = said["zookeeper"].partition("/")[2]
    file.write_text(json.dumps({**said, "zookeeper": f"{servers}/{chroot}"}))
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
) -> Iterator[Lab]:
    """Bring services up in `home` and publish the shipped pipeline, or the one that is named; everything is gone afterwards.

    `more` is what else the site file says; `kafka` and `zookeeper` are the addresses of servers of the test's own, where it has some.
    """
    site = home / "site.yaml"
    copies = "" if "replication:" in more else "replication: 1\n"
    asked = f"pipeline: {pipeline}\n{copies}partitions: {partitions}\n{more}"
    site.write_text((ROOT / "site.yaml").read_text() if pipeline is None else asked)
    env = {
        **os.environ,
        "SLUICE_HOME": str(home),
        "SLUICE_PORT_BASE": str(free_base()),
        "SLUICE_SITE": str(site),
    }
    env.pop("SLUICE_ENDPOINTS", None)
    services = [sys.executable, "-m", "sluice_ops.local.parts"]
    try:
        parts = [*([] if zookeeper else ["zookeeper"]), *([] if kafka else ["kafka"]), "postgres", "spark"]
        subprocess.run([*services, "up", "--only", ",".join(parts)], env=env, cwd=ROOT, check=True)
        file = home / "endpoints.json"
        if kafka is not None:
            subprocess.run([*services, "jars"], env=env, cwd=ROOT, check=True)
            file.write_text(json.dumps({**json.loads(file.read_text()), "kafka": kafka}))
        if zookeeper is not None:
            _make_tree(file, zookeeper)
        note = home / "validated.json"
        if pipeline in VALIDATED:
            note.write_text(VALIDATED[pipeline])
        subprocess.run([sys.executable, "-m", "sluice.commands.publish"], env=env, cwd=ROOT, check=True)
        VALIDATED[pipeline] = note.read_text()
        where = endpoints.Endpoints.model_validate_json((home / "endpoints.json").read_text())
        with Channel(where.zookeeper, where.credential(Role.ADMIN)) as channel:
            lab = Lab(home, env, where, channel)
            try:
                yield lab
            finally:
                lab.end()
    finally:
        kill_services(home)
        subprocess.run([*services, "down"], env=env, cwd=ROOT, check=False)
