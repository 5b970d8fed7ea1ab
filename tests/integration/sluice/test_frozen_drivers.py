"""Drivers that are frozen during their handover with all their processes, and then continue:
stream, table and checkpoint refuse them.

They continue at the worst moment, while ZooKeeper is away: they cannot know their successors.
"""

import re
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

import psutil
import pytest

from sluice.kafka.reader import Streams
from sluice_ops.model.assignment import driver_id, slot_id
from sluice_ops.model.incarnation import Phase, State
from tests.integration.sluice.state_feed import ends
from tests.integration.sluice.test_handover import LEDGER_GAPS
from tests.integration.sluice.test_workers import feeding, read_output
from tests.lab import Lab, until

PIPELINE_MODULE = "tests.integration.sluice.hanging_pipeline"
TIERS = ("store", "tally", "enter")
SINKS = ("store", "tally")
LATE_SECONDS = 5
"""A resumed executor writes what it had under way, and ends."""
FENCED = 3
"""The exit code of a fenced driver."""
WRITERS = "select tier, incarnation, count(*) from ledger group by tier, incarnation"

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]


def batches(lab: Lab, tier: str, number: int) -> int:
    """Return how many batches an incarnation has written."""
    return {(name, writer): count for name, writer, count in lab.query(WRITERS)}.get((tier, number), 0)


def processes(lab: Lab, tier: str, number: int) -> list[psutil.Process]:
    """Return all processes of an incarnation: its driver with its JVM, its Worker and its
    executor.
    """
    heads = [
        psutil.Process(lab.processes[unit].pid)
        for unit in (driver_id(tier, number), slot_id(tier, number, 0))
    ]
    return [process for head in heads for process in (head, *head.children(recursive=True))]


def resume(frozen: list[psutil.Process]) -> None:
    for process in frozen:
        with suppress(psutil.NoSuchProcess):
            process.resume()


@contextmanager
def frozen_host(lab: Lab) -> Iterator[list[psutil.Process]]:
    """Freeze all processes on the first host."""
    frozen = [process for tier in TIERS for process in processes(lab, tier, 1)]
    try:
        for process in frozen:
            process.suspend()
        yield frozen
    finally:
        resume(frozen)


@contextmanager
def without_zookeeper(lab: Lab) -> Iterator[None]:
    """Freeze ZooKeeper."""
    supervisord = psutil.Process(int((lab.home / "run" / "supervisord.pid").read_text()))
    (server,) = [
        process
        for process in supervisord.children(recursive=True)
        if "ZooKeeper" in " ".join(process.cmdline())
    ]
    server.suspend()
    try:
        yield
    finally:
        server.resume()


def test_late_writes_are_refused_or_dropped_and_drivers_exit(lab: Lab) -> None:
    with closing(Streams(lab.endpoints.kafka)) as streams:
        with feeding(lab) as fed:
            _move(lab)
            with frozen_host(lab) as frozen:
                _hand_over(lab)
                batches_when_frozen = {tier: batches(lab, tier, 1) for tier in SINKS}
                with without_zookeeper(lab):
                    thawed = time.time() * 1000
                    resume(frozen)
                    for tier in TIERS:
                        assert lab.driver(tier, 1).wait(200) == FENCED, lab.log(tier, 1)[-3000:]
                    for tier in SINKS:
                        assert "incarnation 2 has written by the owner record" in lab.log(tier, 1)
                    assert '"sluice-writers" names 2' in lab.log("enter", 1)
            until("ZooKeeper is back", lambda: lab.channel.connected)
            assert {tier: batches(lab, tier, 1) for tier in SINKS} == batches_when_frozen, (
                "the ledger accepted no batch of theirs"
            )
            _assert_starts_from_owners_checkpoint(lab)
        until(
            "every number is in the ledger",
            lambda: all(ends(lab, tier) == streams.bounds(["numbers"]).ends for tier in SINKS),
        )
        seen = read_output(streams)
    late = [record for record in seen if record.out.by.startswith("enter/1") and record.out.at > thawed]
    late_seconds = max((record.out.at - thawed for record in late), default=0) / 1000
    print(f"fed {len(fed)}, written {len(seen)}, late {len(late)} in {late_seconds:.1f} s")
    assert len({(record.out.partition, record.out.offset) for record in seen}) == len(fed)
    assert late_seconds < LATE_SECONDS, "the control topic stopped the executor"
    assert lab.query("select count(*), count(distinct n), sum(n) from stored") == [
        (len(fed), len(fed), sum(fed))
    ]
    assert lab.query("select sum(hits), sum(ns) from tallied") == [(len(fed), sum(fed))]
    assert lab.query(LEDGER_GAPS) == []


def _move(lab: Lab) -> None:
    """Start the tiers, and have their next incarnations ready on another host."""
    for tier in TIERS:
        lab.start_owner(tier, 1, "h1")
    until("both sinks get batches", lambda: all(batches(lab, tier, 1) > 1 for tier in SINKS))
    for tier in TIERS:
        lab.set_owner(tier, 1, 2, Phase.PREPARE)
        lab.start(tier, 2, "h2")
    for tier in TIERS:
        lab.wait_for(tier, 2, State.READY)


def _hand_over(lab: Lab) -> None:
    for tier in TIERS:
        lab.set_owner(tier, 1, 2, Phase.CUT)
    for tier in TIERS:
        lab.wait_caught_up(tier, 2)
        lab.set_owner(tier, 2)
    until("the new incarnations write", lambda: all(batches(lab, tier, 2) > 1 for tier in SINKS))


def _assert_starts_from_owners_checkpoint(lab: Lab) -> None:
    """Assert that the third incarnation starts from the second one's checkpoint, and deletes what
    the first has written beside it.
    """
    lab.set_owner("tally", 2, stopped=True)
    lab.wait_for("tally", 2, State.STOPPED)
    lab.stop("tally", 2)
    lab.start_owner("tally", 3, "h3")
    until("the third incarnation counts", lambda: batches(lab, "tally", 3) > 1)
    assert re.search(r"begins from a checkpoint.* of=2\.\d", lab.log("tally", 3))
    folder = lab.home / "checkpoints" / "tally"
    until(
        "checkpoints of earlier incarnations are deleted",
        lambda: {run.name for run in folder.glob("[0-9]*")} == {"3.0"},
    )
