"""Drivers that hang when they should stop, on real Spark with a real controller and agents: one in
its hook, one in its JVM.
"""

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
from tests.integration.sluice.hanging_pipeline import SLEEPS
from tests.integration.sluice.operated_lab import operated, site_of, sluice, steps, tier_line
from tests.integration.sluice.test_handover import LEDGER_GAPS
from tests.integration.sluice.test_workers import feeding, read_output
from tests.lab import Lab, until

PIPELINE_MODULE = "tests.integration.sluice.hanging_pipeline"
TIERS = ("store", "enter")
"""From the end of the pipeline."""
BUSY_SECONDS = 20
"""Allowance for a busy machine. Unit: seconds."""

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]


@pytest.fixture(scope="module")
def site() -> str:
    shares = ", ".join(f"{tier}: {{minimum: 1, target: 1, maximum: 1}}" for tier in TIERS)
    return site_of(shares) + f"locality: {{{', '.join(f'{tier}: h1' for tier in TIERS)}}}\n"


def owner(lab: Lab, tier: str) -> OwnerRecord:
    versioned = lab.channel.read(paths.owner(tier), OwnerRecord)
    assert versioned is not None
    return versioned.value


def driver(lab: Lab, tier: str) -> psutil.Process:
    main = HostFolder(lab.home, "h1").unit(f"driver-{tier}-1").main()  # type: ignore[arg-type]
    assert main is not None
    return psutil.Process(main.pid)


def is_retired(lab: Lab, tier: str) -> bool:
    versioned = lab.channel.read(paths.incarnation(tier, 1), IncarnationSpec)
    return versioned is not None and versioned.value.retired


def freeze_jvm_at_cut(lab: Lab, tier: str) -> None:
    """Freeze the driver's JVM when the next incarnation runs beside it."""
    (jvm,) = [child for child in driver(lab, tier).children(recursive=True) if child.name() == "java"]
    until(f"{tier} is handed over", lambda: owner(lab, tier).phase is Phase.CUT)
    until(
        f"{tier}/2 runs",
        lambda: (report := lab.report(tier, 2)) is not None and report.state is State.RUNNING,
    )
    jvm.suspend()


def wait_during(change: Future[Any], condition: str, check: Callable[[], bool]) -> float:
    """Wait for a condition that must hold before the change ends; return the time."""

    def is_met() -> bool:
        assert not change.done(), change.result()
        return check()

    until(condition, is_met)
    return time.time()


def test_hung_drivers_are_killed_and_no_record_is_lost_or_twice(lab: Lab) -> None:
    with operated(lab):
        with feeding(lab) as fed:
            handed_over_at = _drain(lab)
        until(
            "every number is stored", lambda: lab.query("select count(*) from stored")[0][0] >= len(fed), 60
        )
    with closing(Streams(lab.endpoints.kafka)) as streams:
        seen = read_output(streams)
    print(f"fed {len(fed)}, written {len(seen)}")
    late = (handed_over_at + HANGS_SECONDS / 2) * 1000
    assert not any(record.out.by.startswith("enter/1") and record.out.at > late for record in seen), (
        "the old executors ended with their right to write"
    )
    assert len({(record.out.partition, record.out.offset) for record in seen}) == len(fed)
    assert lab.query("select count(*), count(distinct n), sum(n) from stored") == [
        (len(fed), len(fed), sum(fed))
    ]
    assert lab.query(LEDGER_GAPS) == []


def _drain(lab: Lab) -> float:
    """Drain the host of drivers that will hang; return when their tiers were handed over."""
    for tier in TIERS:
        sluice(lab, "start", tier)
    for tier in TIERS:
        until(f"{tier} runs", lambda tier=tier: tier_line(lab, tier)["state"] == "running")
    until("records are stored", lambda: lab.query("select count(*) from stored")[0][0])
    old_drivers, enter = [driver(lab, tier) for tier in TIERS], driver(lab, "enter")
    (lab.home / SLEEPS).touch()
    with ThreadPoolExecutor(2) as pool:
        drain, freezer = pool.submit(sluice, lab, "drain", "h1"), pool.submit(freeze_jvm_at_cut, lab, "store")
        handed_over_at = wait_during(
            drain, "both tiers are handed over", lambda: all(owner(lab, tier).owner == 2 for tier in TIERS)
        )
        freezer.result()
        assert enter.is_running(), "the driver hangs in its hook, and its heartbeat continues"
        until(
            "the agent has ended the driver with the frozen JVM",
            lambda: not old_drivers[0].is_running(),
            BUSY_SECONDS,
        )
        retired_at = wait_during(
            drain, "both old incarnations are retired", lambda: all(is_retired(lab, tier) for tier in TIERS)
        )
        assert enter.is_running(), "the driver still hangs"
        until("both old drivers have ended", lambda: not any(process.is_running() for process in old_drivers))
        ended_at, done = time.time(), drain.result()
    (lab.home / SLEEPS).unlink()
    assert done["ok"], done
    print(f"retired after {retired_at - handed_over_at:.1f} s, ended {ended_at - retired_at:.1f} s later")
    assert HANGS_SECONDS - 2 < retired_at - handed_over_at < HANGS_SECONDS + BUSY_SECONDS
    assert GRACE_SECONDS - 2 < ended_at - retired_at < GRACE_SECONDS + BUSY_SECONDS
    verified = steps(done)["verify"]["sentence"]
    print(verified)
    continued = "); 2 went on from the last commit"
    assert re.search(
        r"store: 1 left no receipt \(it ended on h1: .*hung since .* UTC: its driver's JVM .*"
        + re.escape(continued),
        verified,
    )
    assert f"enter: 1 left no receipt (it did not end by itself{continued}" in verified
    assert [owner(lab, tier).owner for tier in TIERS] == [2, 2]
    return handed_over_at
