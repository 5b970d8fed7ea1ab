"""Faults of a ZooKeeper ensemble and of its network while records flow, with real tiers, agents and
two controllers.

Each server is on its own host, a network namespace. `c1` is a controller on the third server's
host; `c2` is elsewhere.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from sluice.kafka.reader import Streams
from sluice_ops.channel import ChannelAwayError
from sluice_ops.model import paths
from sluice_ops.model.change import EpochRecord
from sluice_ops.model.exit_codes import AWAY
from sluice_ops.model.status import ControllerStatus
from tests.ensemble import SERVERS, Ensemble, writing
from tests.integration.sluice.operated_lab import command, site_of, sluice, steps, tier_line, with_agents
from tests.integration.sluice.oracle import check, followed, stored
from tests.integration.sluice.test_hung_processes import main_of
from tests.integration.sluice.test_workers import feeding
from tests.integration.sluice.worker_pauses import BUSY_FACTOR
from tests.lab import HOSTS, ROOT, Lab, opened, until
from tests.network import Network, needs_network

PIPELINE_MODULE = "tests.integration.sluice.hanging_pipeline"
TIERS = ("enter", "store")
CUT_HOST = 3
"""The host that is cut off, with `c1` and one server."""
PAUSE_SECONDS = 2.0
"""The longest time without a write when the leading server dies, on a machine with free processors.
"""
BUSY_LOAD = 4.0
"""The load per processor above which other processes slow the test down."""
QUIET_SECONDS = 5.0
"""The longest time between two records of the stream, or two batches of the table, on a busy
machine.
"""
PROBE_ROOT = "/beside"
"""A tree in ZooKeeper next to the pipeline's."""
SETTLE_SECONDS = 15.0
"""The time after which the nodes of an ended session are gone."""

pytestmark = [*needs_network, pytest.mark.timeout(1200), pytest.mark.long]


@dataclass
class Quorum:
    lab: Lab
    network: Network
    servers: Ensemble
    controllers: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    fed_count: int = 0
    """The number of records that all tests together have fed."""

    def control(self, name: str, *inside: str) -> None:
        """Start a controller with its own site file; `inside` is the command prefix of its host."""
        self.site(name).write_text((self.lab.home / "site.yaml").read_text())
        words = [
            *inside,
            sys.executable,
            "-m",
            "sluice_ops.controller",
            "--site",
            str(self.site(name)),
            "--name",
            name,
        ]
        with self.log(name).open("ab") as log:
            self.controllers[name] = subprocess.Popen(
                words, env=self.lab.env, cwd=ROOT, stdout=log, stderr=log
            )

    def site(self, name: str) -> Path:
        return self.lab.home / f"{name}.yaml"

    def log(self, name: str) -> Path:
        return self.lab.home / f"{name}.log"

    def end(self, name: str) -> None:
        process = self.controllers.pop(name)
        process.terminate()
        process.wait(30)

    def leader(self) -> str | None:
        with suppress(ChannelAwayError):
            status = self.lab.channel.read(paths.CONTROLLER_STATUS, ControllerStatus)
            return None if status is None else status.value.leader
        return None

    def epoch(self) -> int:
        record = self.lab.channel.read(paths.EPOCH, EpochRecord)
        assert record is not None
        return record.value.epoch

    def queue(self) -> int:
        """Return how many controllers stand for election or lead.

        The largest of 30 counts in three seconds, because a standby leaves the queue for a moment.
        """
        counts = []
        for _ in range(30):
            with suppress(ChannelAwayError):
                counts.append(len(self.lab.channel.children(paths.LEADER)))
            time.sleep(0.1)
        return max(counts, default=0)

    def lead_by_c1(self) -> None:
        """Make `c1` lead and `c2` stand by."""
        if self.leader() != "c1" or "c1" not in self.controllers:
            for name in list(self.controllers):
                self.end(name)
            self.control("c1", *self.network.inside(CUT_HOST))
            until("c1 leads", lambda: self.leader() == "c1" and self.queue() == 1)
        if "c2" not in self.controllers:
            self.control("c2")
        until("c2 stands by", lambda: self.queue() == 2)

    def owners(self) -> dict[str, int]:
        return {tier: int(tier_line(self.lab, tier)["incarnation"]) for tier in TIERS}

    def all_running(self) -> bool:
        return all(tier_line(self.lab, tier)["state"] == "running" for tier in TIERS)

    @contextmanager
    def under_load(self) -> Iterator[Callable[[], None]]:
        """Feed records; yield a function that waits until records flow through both tiers.

        Check the output at the end.
        """
        fed = list[int]()
        with closing(Streams(self.lab.endpoints.kafka)) as streams, followed(self.lab, *TIERS):

            def stream_end() -> int:
                return sum(streams.bounds(["numbers"]).ends.values())

            def assert_flows() -> None:
                before = stream_end(), stored(self.lab)
                until("the stream gets records", lambda: stream_end() > before[0], QUIET_SECONDS)
                until("the table gets records", lambda: stored(self.lab) > before[1], 2 * QUIET_SECONDS)

            try:
                with feeding(self.lab, first=self.fed_count) as fed:
                    until("records come out", lambda: stream_end() and stored(self.lab))
                    assert_flows()
                    yield assert_flows
            finally:
                self.fed_count += len(fed)
        check(self.lab, self.fed_count)


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    namespaces = Network(*SERVERS)
    yield namespaces
    namespaces.close()


@pytest.fixture(scope="module")
def quorum(tmp_path_factory: pytest.TempPathFactory, network: Network) -> Iterator[Quorum]:
    servers = Ensemble(tmp_path_factory.mktemp("ensemble"), network=network)
    try:
        servers.wait_until_serving()
        site = site_of(", ".join(f"{tier}: {{minimum: 1, target: 1, maximum: 1}}" for tier in TIERS))
        with opened(
            tmp_path_factory.mktemp("pipeline"), PIPELINE_MODULE, site, zookeeper=servers.address
        ) as lab:
            running_quorum = Quorum(lab, network, servers)
            try:
                with with_agents(lab):
                    running_quorum.lead_by_c1()
                    until("the hosts are registered", lambda: len(sluice(lab, "hosts")) == len(HOSTS), 60)
                    for tier in TIERS:
                        sluice(lab, "start", tier)
                    until("the tiers run", running_quorum.all_running)
                    yield running_quorum
            finally:
                for name in list(running_quorum.controllers):
                    running_quorum.end(name)
                sys.stdout.writelines(
                    f"--- {log.name}\n{log.read_text()[-3000:]}\n" for log in lab.home.glob("c?.log")
                )
    finally:
        servers.stop()


@pytest.fixture(autouse=True)
def ready(quorum: Quorum) -> Iterator[None]:
    """Each test starts on an intact network with three servers and with `c1` as the leader, and
    repairs the network at the end.
    """
    quorum.servers.wait_until_serving()
    quorum.lead_by_c1()
    until("all tiers run", quorum.all_running)
    yield
    quorum.network.mend(CUT_HOST)
    quorum.network.plug(CUT_HOST)
    for number in SERVERS:
        if number not in quorum.servers.running:
            quorum.servers.start(number)


def test_a_killed_leading_server_pauses_control_two_seconds_and_data_not(
    quorum: Quorum,
) -> None:
    owners, epoch = quorum.owners(), quorum.epoch()
    quorum.servers.make_path(PROBE_ROOT)
    with quorum.under_load() as assert_flows, writing(quorum.servers.address + PROBE_ROOT) as write_times:
        until("writes succeed", lambda: len(write_times) > 10, 30)
        quorum.servers.kill(quorum.servers.leader())
        killed = time.monotonic()
        assert_flows()
        until("writes succeed again", lambda: write_times[-1] > killed + 5, 60)
        longest = max(later - earlier for earlier, later in pairwise(write_times))
        load_per_core = os.getloadavg()[0] / (os.cpu_count() or 1)
        print(
            f"no write for {longest:.2f} s after the leading server was killed; "
            f"load {load_per_core:.1f} a core"
        )
        assert longest < PAUSE_SECONDS * (BUSY_FACTOR if load_per_core > BUSY_LOAD else 1)
        time.sleep(SETTLE_SECONDS)
        assert_flows()
        assert quorum.owners() == owners, "no driver was restarted"
        assert (quorum.leader(), quorum.epoch()) == ("c1", epoch), (
            "the session continued, so the leader did not change"
        )


def _assert_restarts_dead_driver(quorum: Quorum) -> None:
    """Kill a driver, and assert that the leading controller restarts it."""
    number = quorum.owners()["store"]
    main_of(quorum.lab, f"driver-store-{number}").kill()
    until("another driver of store runs", lambda: quorum.owners()["store"] > number and quorum.all_running())


def test_a_controller_on_the_minority_side_of_a_partition_does_nothing(quorum: Quorum) -> None:
    epoch, log = quorum.epoch(), quorum.log("c1")
    before = len(log.read_text())
    with quorum.under_load() as assert_flows:
        print(f"cut off: server {CUT_HOST} and c1; server {quorum.servers.leader()} led")
        quorum.network.cut(CUT_HOST)
        parted_at = time.monotonic()
        assert_flows()
        until("c2 leads", lambda: quorum.leader() == "c2", 60)
        print(f"c2 leads {time.monotonic() - parted_at:.1f} s after the partition")
        with quorum.site("c1").open("a") as site:  # a leading c1 would move a tier and publish this
            site.write("locality: {store: h3, enter: h3}\n")
        _assert_restarts_dead_driver(quorum)
        assert_flows()
        owners = quorum.owners()
        until(
            "c1 has read its site file", lambda: "the site file has changed" in log.read_text()[before:], 30
        )
        time.sleep(SETTLE_SECONDS)
        quorum.network.mend(CUT_HOST)
        until("c1 stands by again", lambda: quorum.queue() == 2, 90)
        quorum.servers.wait_until_serving()
        time.sleep(SETTLE_SECONDS)
        assert_flows()
        assert (quorum.leader(), quorum.epoch()) == ("c2", epoch + 1)
        assert quorum.controllers["c1"].poll() is None
        assert quorum.owners() == owners, "the tiers that c1 would move have not moved"


def test_a_drain_completes_under_a_flapping_link_and_leaks_no_lock(quorum: Quorum) -> None:
    lab, epoch = quorum.lab, quorum.epoch()
    with quorum.under_load() as assert_flows, ThreadPoolExecutor(1) as pool:
        host = tier_line(lab, "enter")["driver"]["host"]
        drained = pool.submit(sluice, lab, "drain", host)
        flaps = 0
        while not drained.done() or flaps < 10:  # the longer interruptions end the session
            quorum.network.unplug(CUT_HOST)
            time.sleep((0.5, 1.0, 3.0, 9.0)[flaps % 4])
            quorum.network.plug(CUT_HOST)
            time.sleep((1.0, 2.0, 6.0)[flaps % 3])
            flaps += 1
        drain_result: Any = drained.result()
        print(
            f"{flaps} flaps, {quorum.epoch() - epoch} changes of the leader; "
            f"drain: {json.dumps(steps(drain_result))[:300]}"
        )
        assert drain_result["ok"], drain_result
        until("all tiers run", quorum.all_running)
        time.sleep(SETTLE_SECONDS)
        assert_flows()
        assert quorum.queue() == 2, "one place in the queue for each controller"
        assert not lab.channel.exists(paths.LOCK), "the drain has released its lock"
        assert all(process.poll() is None for process in quorum.controllers.values())
        assert sluice(lab, "return", host)["ok"]


@pytest.mark.parametrize(
    "minutes", [1, pytest.param(10, marks=[pytest.mark.timeout(1800), pytest.mark.endurance])]
)
def test_without_a_majority_records_flow_and_nothing_moves(quorum: Quorum, minutes: int) -> None:
    owners = quorum.owners()
    with quorum.under_load() as assert_flows:
        lost = [number for number in SERVERS if number != CUT_HOST]
        quorum.servers.kill(*lost)
        lost_at = time.monotonic()
        while time.monotonic() < lost_at + 60 * minutes:
            assert_flows()
            time.sleep(5)
        done = subprocess.run(
            command("status"),
            env=quorum.lab.env,
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == AWAY, done.stdout + done.stderr
        assert "Tiers run on, but no change is possible until ZooKeeper answers." in done.stdout
        for number in lost:
            quorum.servers.start(number)
        quorum.servers.leader()
        back = time.monotonic()
        until(
            "a controller leads, and all tiers run",
            lambda: quorum.leader() and quorum.queue() == 2 and quorum.all_running(),
        )
        print(f"control is back {time.monotonic() - back:.1f} s after the majority")
        time.sleep(SETTLE_SECONDS)
        assert quorum.owners() == owners, "nothing moved"
        _assert_restarts_dead_driver(quorum)
