"""What breaks is killed for real, under load: the pipeline is whole again in time, runbooks end truthfully, nothing is lost or twice."""

import os
import signal
import time
from collections.abc import Callable

import psutil
import pytest

from tests.scenarios.live import PATIENCE, Live, until
from tests.scenarios.oracle import Load, counts_agree

pytestmark = [pytest.mark.timeout(900)]
LONG = pytest.mark.long

RATE = 250


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def runs_anew(live: Live, service: str, before: int) -> bool:
    try:
        return live.service_pid(service) != before
    except AssertionError:  # it does not run yet
        return False


def driver_of(live: Live, tier: str) -> int:
    incarnation = live.tiers()[tier]["incarnation"]
    return live.unit_pids(f"driver-{tier}-{incarnation}")[f"driver-{tier}-{incarnation}"]


def slot_of(live: Live, tier: str) -> int:
    incarnation = live.tiers()[tier]["incarnation"]
    return next(iter(live.unit_pids(f"slot-{tier}-{incarnation}-").values()))


def executor_of(live: Live, tier: str) -> int:
    for child in psutil.Process(slot_of(live, tier)).children(recursive=True):
        if "CoarseGrainedExecutorBackend" in " ".join(child.cmdline()):
            return child.pid
    message = f"no executor of {tier}"
    raise AssertionError(message)


def agent_of(live: Live, tier: str) -> int:
    return live.service_pid(f"agent-{live.tiers()[tier]['driver']['host']}")


STEADY: dict[str, Callable[[Live], int]] = {
    "the driver of a realtime tier": lambda live: driver_of(live, "entry"),
    "the driver of a batch tier": lambda live: driver_of(live, "outbound"),
    "an executor of a realtime tier": lambda live: executor_of(live, "enrich"),
    "an executor of a batch tier": lambda live: executor_of(live, "counts"),
    "a slot": lambda live: slot_of(live, "entry"),
    "an agent": lambda live: agent_of(live, "entry"),
}
SOON = {"a slot", "an agent"}
"""Those that are whole again in seconds; a slot takes its executor with it."""


@pytest.mark.parametrize("victim", [pytest.param(victim, marks=[] if victim in SOON else LONG) for victim in STEADY])
def test_it_is_killed_while_records_flow(live: Live, victim: str) -> None:
    with Load(live, RATE) as load:
        pid = STEADY[victim](live)
        kill(pid)
        killed = time.monotonic()
        until(f"{victim} is missed", 10, lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == "zombie", every=0.1)
        time.sleep(2)  # what was on its way before is through
        fed = max(load.raw.first_seen)
        until("what was fed meanwhile is put out", PATIENCE, lambda: load.enriched.has_all(load.raw, fed), every=0.2)
        print(f"{victim}: output again within {time.monotonic() - killed:.1f} s")  # noqa: T201
        until("the pipeline is whole again", PATIENCE, live.whole)
    load.check()


MIDWAY: dict[str, Callable[[Live], int]] = {
    "the controller": lambda live: live.service_pid("controller"),
    "the Spark master": lambda live: live.service_pid("spark"),
    "Airflow's scheduler": lambda live: live.service_pid("airflow-scheduler"),
    "Airflow's triggerer": lambda live: live.service_pid("airflow-triggerer"),
    "the driver that is to be moved": lambda live: driver_of(live, "entry"),
}


@LONG
@pytest.mark.parametrize("victim", MIDWAY)
def test_it_is_killed_in_the_middle_of_a_drain(live: Live, victim: str) -> None:
    with Load(live, RATE) as load:
        host = live.tiers()["entry"]["driver"]["host"]
        pid = MIDWAY[victim](live)
        run = live.trigger("drain_host", host=host)
        until("the host is cordoned", PATIENCE, lambda: live.hosts()[host]["state"] in {"cordoned", "draining"})
        kill(pid)
        state = live.finish("drain_host", run)
        until("the pipeline is whole again", PATIENCE, live.whole)
        if state == "success":
            assert live.left_on(host) == []
            assert live.hosts()[host]["state"] == "drained"
        else:
            assert live.hosts()[host]["state"] == "up", "a drain that failed leaves the host in use"
    load.check()


@LONG
@pytest.mark.parametrize("minutes", [1, pytest.param(10, marks=[pytest.mark.timeout(1500), pytest.mark.endurance])])
def test_zookeeper_is_stopped(live: Live, minutes: int) -> None:
    with Load(live, RATE) as load:
        before = live.tiers()
        zookeeper = psutil.Process(live.service_pid("zookeeper"))
        zookeeper.suspend()
        try:
            stopped = time.time()
            time.sleep(60 * minutes)
            latest = max(load.enriched.first_seen.values())
            assert latest > stopped + 60 * minutes - 5, "records kept flowing"
        finally:
            zookeeper.resume()
        until("the pipeline is whole again", PATIENCE, live.whole)
        assert {name: tier["incarnation"] for name, tier in live.tiers().items()} == {
            name: tier["incarnation"] for name, tier in before.items()
        }, "nothing moved"
    load.check()


@LONG
@pytest.mark.parametrize("service", ["kafka", "postgres"])
def test_a_service_is_killed_while_records_flow(live: Live, service: str) -> None:
    with Load(live, RATE) as load:
        pid = live.service_pid(service)
        kill(pid)
        killed = time.monotonic()
        until(f"{service} runs again", PATIENCE, lambda: runs_anew(live, service, pid), every=0.2)
        time.sleep(5)  # whoever gives up has noticed
        until("the pipeline is whole again", PATIENCE, live.whole)
        fed = max(load.raw.first_seen)
        until("what was fed meanwhile is put out", PATIENCE, lambda: load.enriched.has_all(load.raw, fed), every=0.2)
        print(f"{service}: whole again after {time.monotonic() - killed:.1f} s")  # noqa: T201
    load.check()


@LONG
def test_the_database_is_stopped_for_a_minute(live: Live) -> None:
    with Load(live, RATE) as load:
        postmaster = psutil.Process(live.service_pid("postgres"))
        stopped = [postmaster, *postmaster.children(recursive=True)]
        for process in stopped:
            process.suspend()
        try:
            since = time.time()
            time.sleep(60)
            assert max(load.enriched.first_seen.values()) > since + 55, "tiers that do not need it flow on"
        finally:
            for process in stopped:
                process.resume()
        until("the pipeline is whole again", PATIENCE, live.whole)
    load.check()


def test_the_counts_still_sum_to_the_deliveries(live: Live) -> None:
    counts_agree(live)
