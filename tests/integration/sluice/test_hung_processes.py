"""Processes hang while records flow, on real Spark with a real controller and agents: each is
found, and output flows again.
"""

import time
from collections.abc import Callable
from contextlib import closing

import psutil
import pytest

from sluice.driver.process.heartbeat import LIMITS
from sluice.kafka.reader import Streams
from sluice_ops.agent.host.store import HostFolder
from sluice_ops.model import paths
from sluice_ops.model.incarnation import IncarnationSpec, OwnerRecord
from tests.integration.sluice.hanging_pipeline import LOCKED
from tests.integration.sluice.operated_lab import operated, site_of, sluice, tier_line
from tests.integration.sluice.test_handover import LEDGER_GAPS
from tests.integration.sluice.test_workers import feeding, read_output
from tests.lab import HOSTS, Lab, until

PIPELINE_MODULE = "tests.integration.sluice.hanging_pipeline"
TIERS = ("store", "enter")
FLOWS_SECONDS = 20.0
"""The time until a tier with a frozen driver has output again; for a hung loop, from the time when
it is found.
"""
BUSY_SECONDS = 5.0
"""Allowance for finding a hang on a busy machine. Unit: seconds."""

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]


@pytest.fixture(scope="module")
def site() -> str:
    return site_of(", ".join(f"{tier}: {{minimum: 1, target: 1, maximum: 1}}" for tier in TIERS))


def owner(lab: Lab, tier: str) -> IncarnationSpec:
    """Wait until the tier has an owner; return its incarnation."""

    def owning() -> IncarnationSpec | None:
        record = lab.channel.read(paths.owner(tier), OwnerRecord)
        if record is None or record.value.owner is None:
            return None
        versioned = lab.channel.read(paths.incarnation(tier, record.value.owner), IncarnationSpec)
        return None if versioned is None else versioned.value

    return until(f"{tier} has an owner", owning)


def main_of(lab: Lab, unit: str) -> psutil.Process:
    homes = [HostFolder(lab.home, host).unit(unit) for host in HOSTS]  # type: ignore[arg-type]
    (main,) = [main for folder in homes if (main := folder.main()) is not None and main.alive]
    return psutil.Process(main.pid)


def java_below(process: psutil.Process) -> psutil.Process:
    return next(child for child in process.children(recursive=True) if child.name() == "java")


def python_of(lab: Lab, tier: str) -> psutil.Process:
    return main_of(lab, f"driver-{tier}-{owner(lab, tier).incarnation}")


def jvm_of(lab: Lab, tier: str) -> psutil.Process:
    return java_below(python_of(lab, tier))


def executor_of(lab: Lab, tier: str) -> psutil.Process:
    return java_below(main_of(lab, f"slot-{tier}-{owner(lab, tier).incarnation}-0"))


def out(lab: Lab, tier: str) -> int:
    """Return the amount of a tier's output."""
    if tier == "store":
        return int(lab.query("select count(*) from stored")[0][0])
    with closing(Streams(lab.endpoints.kafka)) as streams:
        return sum(streams.bounds(["numbers"]).ends.values())


def is_running(lab: Lab, tier: str) -> bool:
    return bool(tier_line(lab, tier)["state"] == "running")


def loop_of(lab: Lab, tier: str) -> psutil.Process:
    """Make the working loop of a driver hang; its other threads continue."""
    process = python_of(lab, tier)
    (lab.home / LOCKED.format(tier=tier)).touch()
    until("the loop hangs", lambda: not (lab.home / LOCKED.format(tier=tier)).exists())
    return process


REASONS = {
    python_of: "its driver's Python was stopped; its agent ended it",
    jvm_of: "its driver's JVM was stopped; its agent ended it",
    loop_of: "the working loop of the driver has made no progress for ",
}


def test_hung_processes_are_found_and_output_flows_again(lab: Lab) -> None:
    frozen = ((python_of, "enter"), (jvm_of, "store"), (executor_of, "store"), (executor_of, "enter"))
    hangs = (*frozen, (loop_of, "enter"), (loop_of, "store"))
    lab.write_class_data()  # as on a platform that has run for minutes
    with operated(lab):
        with feeding(lab) as fed:
            for tier in TIERS:
                sluice(lab, "start", tier)
            for tier in TIERS:
                until(f"{tier} runs", lambda tier=tier: is_running(lab, tier))
            until("records are stored", lambda: out(lab, "store"))
            for part, tier in hangs:
                _hang(lab, part, tier)
        until("every number is stored", lambda: out(lab, "store") >= len(fed), 120)
    with closing(Streams(lab.endpoints.kafka)) as streams:
        seen = read_output(streams)
    assert len({(record.out.partition, record.out.offset) for record in seen}) == len(fed)
    assert lab.query("select count(*), count(distinct n), sum(n) from stored") == [
        (len(fed), len(fed), sum(fed))
    ]
    assert lab.query(LEDGER_GAPS) == []


def _hang(lab: Lab, part: Callable[[Lab, str], psutil.Process], tier: str) -> None:
    before, process = owner(lab, tier), part(lab, tier)
    if part is not loop_of:
        process.suspend()
    stopped, output_at_hang = time.monotonic(), out(lab, tier)
    until(f"the hung {part.__name__} of {tier} is ended", lambda: not process.is_running())
    ended = time.monotonic() - stopped
    if part is not executor_of:  # executors of a dead driver may write records until they hear of its end
        until(f"{tier} has another owner", lambda: owner(lab, tier).incarnation != before.incarnation)
    output_at_end = out(lab, tier)
    until(f"{tier} has output again", lambda: out(lab, tier) > output_at_end)
    flows = time.monotonic() - stopped
    print(
        f"{part.__name__} of {tier}: ended after {ended:.1f} s, flows after {flows:.1f} s "
        f"({output_at_end - output_at_hang} came late)"
    )
    assert ended < (LIMITS.idle if part is loop_of else 2) + BUSY_SECONDS
    assert flows < (LIMITS.idle if part is loop_of else 0) + FLOWS_SECONDS
    until(f"{tier} runs", lambda: is_running(lab, tier))
    if part is not executor_of:
        reason = owner(lab, tier).reason
        assert "hung since " in reason, reason
        assert REASONS[part] in reason
        assert f"incarnation {before.incarnation} ended on {before.placement.driver}" in reason
    time.sleep(5)
