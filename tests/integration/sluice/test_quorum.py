"""Faults of a ZooKeeper ensemble and of its network while records flow, on real tiers, agents and
two controllers.

Each of the three servers is on a host of its own, a network namespace; `c1` is a controller on the
third one's host, `c2` is elsewhere.
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
from sluice_ops.cli.exit_codes import AWAY
from sluice_ops.model import paths
from sluice_ops.model.change import EpochRecord
from sluice_ops.model.status import ControllerStatus
from tests.ensemble import SERVERS, Ensemble, writing
from tests.integration.sluice.asking import command, site_of, sluice, steps, tier_line, with_agents
from tests.integration.sluice.oracle import check, followed, stored
from tests.integration.sluice.resting import BUSY_FACTOR
from tests.integration.sluice.test_hung import main_of
from tests.integration.sluice.test_workers import feeding
from tests.lab import HOSTS, ROOT, Lab, opened, until
from tests.network import Network, needs_network

PIPELINE_MODULE = "tests.integration.sluice.outliving"
TIERS = ("enter", "store")
SMALL = 3
"""The host that is cut off: `c1` and a server are on it."""
PAUSE_SECONDS = 2.0
"""So long at most nothing can be written when the leading server dies, on a machine that has
processors to spare.
"""
CROWDED = 4.0
"""So many wait for each processor where others use the machine, too."""
QUIET_SECONDS = 5.0
"""Between two records of the stream, and of the table's batches, on a machine that does
much else.
"""
BESIDE = "/beside"
"""A tree of ZooKeeper's beside the pipeline's."""
SETTLE_SECONDS = 15.0
"""After so long what an earlier session has left is gone."""

pytestmark = [*needs_network, pytest.mark.timeout(1200), pytest.mark.long]


@dataclass
class Quorum:
    lab: Lab
    network: Network
    servers: Ensemble
    controllers: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    given_count: int = 0
    """The records that all tests together have fed."""

    def control(self, name: str, *inside: str) -> None:
        """Start a controller, with a site file of its own, perhaps on one of the hosts."""
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
        """Return how many stand for election, or lead; None of them leaves while this looks on for
        three seconds.
        """
        counts = []
        for _ in range(30):
            with suppress(ChannelAwayError):
                counts.append(len(self.lab.channel.children(paths.LEADER)))
            time.sleep(0.1)
        return max(counts, default=0)

    def lead_by_c1(self) -> None:
        """Have `c1` lead and `c2` stand by."""
        if self.leader() != "c1" or "c1" not in self.controllers:
            for name in list(self.controllers):
                self.end(name)
            self.control("c1", *self.network.inside(SMALL))
            until("c1 leads", lambda: self.leader() == "c1" and self.queue() == 1)
        if "c2" not in self.controllers:
            self.control("c2")
        until("c2 stands by", lambda: self.queue() == 2)

    def owners(self) -> dict[str, int]:
        return {tier: int(tier_line(self.lab, tier)["incarnation"]) for tier in TIERS}

    def whole(self) -> bool:
        return all(tier_line(self.lab, tier)["state"] == "running" for tier in TIERS)

    @contextmanager
    def under_load(self) -> Iterator[Callable[[], None]]:
        """Give records all the while; yield what tells that they flow through both tiers.

        Everything is checked at the end.
        """
        fed = list[int]()
        with closing(Streams(self.lab.endpoints.kafka)) as streams, followed(self.lab, *TIERS):

            def put() -> int:
                return sum(streams.bounds(["numbers"]).ends.values())

            def flows() -> None:
                before = put(), stored(self.lab)
                until("the stream gets records", lambda: put() > before[0], QUIET_SECONDS)
                until("the table gets records", lambda: stored(self.lab) > before[1], 2 * QUIET_SECONDS)

            try:
                with feeding(self.lab, first=self.given_count) as fed:
                    until("records come", lambda: put() and stored(self.lab))
                    flows()
                    yield flows
            finally:
                self.given_count += len(fed)
        check(self.lab, self.given_count)


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    made = Network(*SERVERS)
    yield made
    made.close()


@pytest.fixture(scope="module")
def quorum(tmp_path_factory: pytest.TempPathFactory, network: Network) -> Iterator[Quorum]:
    servers = Ensemble(tmp_path_factory.mktemp("ensemble"), network=network)
    try:
        servers.wait_until_serving()
        site = site_of(", ".join(f"{tier}: {{minimum: 1, target: 1, maximum: 1}}" for tier in TIERS))
        with opened(
            tmp_path_factory.mktemp("pipeline"), PIPELINE_MODULE, site, zookeeper=servers.address
        ) as lab:
            made = Quorum(lab, network, servers)
            try:
                with with_agents(lab):
                    made.lead_by_c1()
                    until("the hosts are there", lambda: len(sluice(lab, "hosts")) == len(HOSTS), 60)
                    for tier in TIERS:
                        sluice(lab, "start", tier)
                    until("the tiers run", made.whole)
                    yield made
            finally:
                for name in list(made.controllers):
                    made.end(name)
                sys.stdout.writelines(
                    f"--- {log.name}\n{log.read_text()[-3000:]}\n" for log in lab.home.glob("c?.log")
                )
    finally:
        servers.stop()


@pytest.fixture(autouse=True)
def ready(quorum: Quorum) -> Iterator[None]:
    """Each test begins, and ends, on a whole network with three servers; `c1` leads."""
    quorum.servers.wait_until_serving()
    quorum.lead_by_c1()
    until("the pipeline is whole", quorum.whole)
    yield
    quorum.network.mend(SMALL)
    quorum.network.plug(SMALL)
    for number in SERVERS:
        if number not in quorum.servers.running:
            quorum.servers.start(number)


def test_a_killed_leading_server_pauses_control_two_seconds_and_data_not(
    quorum: Quorum,
) -> None:
    owners, epoch = quorum.owners(), quorum.epoch()
    quorum.servers.make_path(BESIDE)
    with quorum.under_load() as flows, writing(quorum.servers.address + BESIDE) as taken:
        until("writes are taken", lambda: len(taken) > 10, 30)
        quorum.servers.kill(quorum.servers.leader())
        killed = time.monotonic()
        flows()
        until("writes are taken again", lambda: taken[-1] > killed + 5, 60)
        longest = max(after - at for at, after in pairwise(taken))
        waiting = os.getloadavg()[0] / (os.cpu_count() or 1)
        print(
            f"nothing could be written for {longest:.2f} s after the leading server was killed; "
            f"load {waiting:.1f} a core"
        )
        assert longest < PAUSE_SECONDS * (BUSY_FACTOR if waiting > CROWDED else 1)
        time.sleep(SETTLE_SECONDS)
        flows()
        assert quorum.owners() == owners, "nothing was started anew"
        assert (quorum.leader(), quorum.epoch()) == ("c1", epoch), (
            "the session went on, so nobody else had to lead"
        )


def _mends_a_death(quorum: Quorum) -> None:
    """A driver that dies is replaced, by whoever leads."""
    number = quorum.owners()["store"]
    main_of(quorum.lab, f"driver-store-{number}").kill()
    until("another driver of store runs", lambda: quorum.owners()["store"] > number and quorum.whole())


def test_a_controller_on_the_small_side_of_a_partition_acts_on_nothing(quorum: Quorum) -> None:
    epoch, log = quorum.epoch(), quorum.log("c1")
    before = len(log.read_text())
    with quorum.under_load() as flows:
        print(f"cut off: server {SMALL} and c1; server {quorum.servers.leader()} led")
        quorum.network.cut(SMALL)
        parted = time.monotonic()
        flows()
        until("c2 leads", lambda: quorum.leader() == "c2", 60)
        print(f"another one leads {time.monotonic() - parted:.1f} s after the partition")
        with quorum.site("c1").open("a") as site:  # would have c1 move a tier, and say so in the channel
            site.write("locality: {store: h3, enter: h3}\n")
        _mends_a_death(quorum)
        flows()
        owners = quorum.owners()
        until(
            "c1 has read its site file", lambda: "the site file has changed" in log.read_text()[before:], 30
        )
        time.sleep(SETTLE_SECONDS)
        quorum.network.mend(SMALL)
        until("c1 stands by again", lambda: quorum.queue() == 2, 90)
        quorum.servers.wait_until_serving()
        time.sleep(SETTLE_SECONDS)
        flows()
        assert (quorum.leader(), quorum.epoch()) == ("c2", epoch + 1)
        assert quorum.controllers["c1"].poll() is None
        assert quorum.owners() == owners, "what c1 wanted to move has not moved"


def test_a_drain_completes_under_a_flapping_link_and_leaks_no_lock(quorum: Quorum) -> None:
    lab, epoch = quorum.lab, quorum.epoch()
    with quorum.under_load() as flows, ThreadPoolExecutor(1) as pool:
        host = tier_line(lab, "enter")["driver"]["host"]
        drained = pool.submit(sluice, lab, "drain", host)
        flaps = 0
        while not drained.done() or flaps < 10:  # the longer ones end the session
            quorum.network.unplug(SMALL)
            time.sleep((0.5, 1.0, 3.0, 9.0)[flaps % 4])
            quorum.network.plug(SMALL)
            time.sleep((1.0, 2.0, 6.0)[flaps % 3])
            flaps += 1
        asked: Any = drained.result()
        print(
            f"{flaps} flaps, {quorum.epoch() - epoch} changes of the leader; "
            f"drain: {json.dumps(steps(asked))[:300]}"
        )
        assert asked["ok"], asked
        until("all is well", quorum.whole)
        time.sleep(SETTLE_SECONDS)
        flows()
        assert quorum.queue() == 2, "one place in the queue for each controller"
        assert not lab.channel.exists(paths.LOCK), "the drain's lock was fed back"
        assert all(process.poll() is None for process in quorum.controllers.values())
        assert sluice(lab, "return", host)["ok"]


@pytest.mark.parametrize(
    "minutes", [1, pytest.param(10, marks=[pytest.mark.timeout(1800), pytest.mark.endurance])]
)
def test_without_a_majority_records_flow_and_nothing_moves(quorum: Quorum, minutes: int) -> None:
    owners = quorum.owners()
    with quorum.under_load() as flows:
        lost = [number for number in SERVERS if number != SMALL]
        quorum.servers.kill(*lost)
        gone = time.monotonic()
        while time.monotonic() < gone + 60 * minutes:
            flows()
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
        assert "nothing is decided until it is back; what runs goes on" in done.stdout
        for number in lost:
            quorum.servers.start(number)
        quorum.servers.leader()
        back = time.monotonic()
        until(
            "somebody leads, and all is well",
            lambda: quorum.leader() and quorum.queue() == 2 and quorum.whole(),
        )
        print(f"control is back {time.monotonic() - back:.1f} s after the majority")
        time.sleep(SETTLE_SECONDS)
        assert quorum.owners() == owners, "nothing moved"
        _mends_a_death(quorum)
