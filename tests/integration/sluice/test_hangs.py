"""Drivers that hang as they should stop, on real Spark, by a controller and agents that are real: one in its own hook, one in its JVM."""

import re
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import Any

import psutil
import pytest

from sluice.kafka.reader import Streams
from sluice_ops.agent.host.store import HostFolder
from sluice_ops.agent.units.reconcile import GRACE_SECONDS
from sluice_ops.controller.steps.verify import HANGS_SECONDS
from sluice_ops.model import paths
from sluice_ops.model.incarnation import IncarnationSpec, OwnerRecord, Phase, State
from tests.integration.sluice.asking import operated, site_of, sluice, steps, tier_line
from tests.integration.sluice.outliving import SLEEPS
from tests.integration.sluice.test_handover import HOLES
from tests.integration.sluice.test_workers import everything, giving
from tests.lab import Lab, until

PIPELINE_MODULE = "tests.integration.sluice.outliving"
TIERS = ("store", "enter")
"""The end first."""
BUSY = 20
"""So much later it may be on a machine that does much else. Unit: seconds."""

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]


@pytest.fixture(scope="module")
def site() -> str:
    shares = ", ".join(f"{tier}: {{minimum: 1, target: 1, maximum: 1}}" for tier in TIERS)
    return site_of(shares) + f"locality: {{{', '.join(f'{tier}: h1' for tier in TIERS)}}}\n"


def owner(lab: Lab, tier: str) -> OwnerRecord:
    found = lab.channel.read(paths.owner(tier), OwnerRecord)
    assert found is not None
    return found.value


def driver(lab: Lab, tier: str) -> psutil.Process:
    main = HostFolder(lab.home, "h1").unit(f"driver-{tier}-1").main()  # type: ignore[arg-type]
    assert main is not None
    return psutil.Process(main.pid)


def is_retired(lab: Lab, tier: str) -> bool:
    found = lab.channel.read(paths.incarnation(tier, 1), IncarnationSpec)
    return found is not None and found.value.retired


def stop_the_clock(lab: Lab, tier: str) -> None:
    """Have the driver's JVM stand still from when the next incarnation runs beside it."""
    (jvm,) = [child for child in driver(lab, tier).children(recursive=True) if child.name() == "java"]
    until(f"{tier} is handed over", lambda: owner(lab, tier).phase is Phase.CUT)
    until(f"{tier}/2 runs", lambda: (said := lab.report(tier, 2)) is not None and said.state is State.RUNNING)
    jvm.suspend()


def while_asked(asked: Future[Any], what: str, check: Callable[[], bool]) -> float:
    """Return when something came about, before what was asked has ended."""

    def came() -> bool:
        assert not asked.done(), asked.result()
        return check()

    until(what, came)
    return time.time()


def test_they_are_taken_away_and_nothing_is_lost_or_twice(lab: Lab) -> None:
    with operated(lab):
        with giving(lab) as given:
            handed = _drain(lab)
        until("all is stored", lambda: lab.query("select count(*) from stored")[0][0] >= len(given), 60)
    with closing(Streams(lab.endpoints.kafka)) as streams:
        seen = everything(streams)
    print(f"given {len(given)}, put out {len(seen)}")
    late = (handed + HANGS_SECONDS / 2) * 1000
    assert not any(each.out.by.startswith("enter/1") and each.out.at > late for each in seen), (
        "its executors have ended with its right"
    )
    assert len({(each.out.partition, each.out.offset) for each in seen}) == len(given)
    assert lab.query("select count(*), count(distinct n), sum(n) from stored") == [
        (len(given), len(given), sum(given))
    ]
    assert lab.query(HOLES) == []


def _drain(lab: Lab) -> float:
    """Have the host drained whose drivers will hang; return when they were handed over."""
    for tier in TIERS:
        sluice(lab, "start", tier)
    for tier in TIERS:
        until(f"{tier} runs", lambda tier=tier: tier_line(lab, tier)["state"] == "running")
    until("records are stored", lambda: lab.query("select count(*) from stored")[0][0])
    old, enter = [driver(lab, tier) for tier in TIERS], driver(lab, "enter")
    (lab.home / SLEEPS).touch()
    with ThreadPoolExecutor(2) as pool:
        asked, stopped = pool.submit(sluice, lab, "drain", "h1"), pool.submit(stop_the_clock, lab, "store")
        handed = while_asked(
            asked, "both are handed over", lambda: all(owner(lab, tier).owner == 2 for tier in TIERS)
        )
        stopped.result()
        assert enter.is_running(), "it hangs in its hook, and its heartbeat goes on"
        until("the one whose JVM stands still is ended by its agent", lambda: not old[0].is_running(), BUSY)
        retired = while_asked(
            asked, "they are taken off", lambda: all(is_retired(lab, tier) for tier in TIERS)
        )
        assert enter.is_running(), "it hangs"
        until("they are gone", lambda: not any(process.is_running() for process in old))
        gone, done = time.time(), asked.result()
    (lab.home / SLEEPS).unlink()
    assert done["ok"], done
    print(f"taken off after {retired - handed:.1f} s, gone {gone - retired:.1f} s later")
    assert HANGS_SECONDS - 2 < retired - handed < HANGS_SECONDS + BUSY
    assert GRACE_SECONDS - 2 < gone - retired < GRACE_SECONDS + BUSY
    verified = steps(done)["verify"]["sentence"]
    print(verified)
    went_on = "); 2 went on from the last commit"
    assert re.search(
        rf"store: 1 left no receipt \(it ended on h1: .*hung since .* UTC: its driver's JVM .*{re.escape(went_on)}",
        verified,
    )
    assert f"enter: 1 left no receipt (it did not end by itself{went_on}" in verified
    assert [owner(lab, tier).owner for tier in TIERS] == [2, 2]
    return handed
