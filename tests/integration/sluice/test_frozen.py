"""Drivers that stand still over their hand-over, with all that is theirs, and go on: at the stream, the table and the checkpoint.

They do so at the worst moment, while ZooKeeper is away: nobody tells them that another owns their tier.
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
from tests.integration.sluice.given import ends
from tests.integration.sluice.test_handover import HOLES
from tests.integration.sluice.test_workers import everything, giving
from tests.lab import Lab, until

PIPELINE_MODULE = "tests.integration.sluice.outliving"
TIERS = ("store", "tally", "enter")
SINKS = ("store", "tally")
FEW_SECONDS = 5
"""An executor that is woken puts what it had under way, and ends."""
FENCED = 3
"""The exit code of who was refused."""
WRITERS = "select tier, incarnation, count(*) from ledger group by tier, incarnation"

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]


def batches(lab: Lab, tier: str, number: int) -> int:
    """Return how many batches an incarnation has written."""
    return {(name, writer): count for name, writer, count in lab.query(WRITERS)}.get((tier, number), 0)


def processes(lab: Lab, tier: str, number: int) -> list[psutil.Process]:
    """Return all that an incarnation consists of: its driver with its JVM, its Worker and its executor."""
    heads = [
        psutil.Process(lab.processes[unit].pid)
        for unit in (driver_id(tier, number), slot_id(tier, number, 0))
    ]
    return [each for head in heads for each in (head, *head.children(recursive=True))]


def wake(stopped: list[psutil.Process]) -> None:
    for each in stopped:
        with suppress(psutil.NoSuchProcess):
            each.resume()


@contextmanager
def standing_still(lab: Lab) -> Iterator[list[psutil.Process]]:
    """Have all that runs on the first host stand still."""
    stopped = [each for tier in TIERS for each in processes(lab, tier, 1)]
    try:
        for each in stopped:
            each.suspend()
        yield stopped
    finally:
        wake(stopped)


@contextmanager
def without_zookeeper(lab: Lab) -> Iterator[None]:
    """Have ZooKeeper stand still."""
    supervisord = psutil.Process(int((lab.home / "run" / "supervisord.pid").read_text()))
    (server,) = [
        each for each in supervisord.children(recursive=True) if "ZooKeeper" in " ".join(each.cmdline())
    ]
    server.suspend()
    try:
        yield
    finally:
        server.resume()


def test_what_they_do_late_is_refused_or_dropped_and_they_exit(lab: Lab) -> None:
    with closing(Streams(lab.endpoints.kafka)) as streams:
        with giving(lab) as given:
            _move(lab)
            with standing_still(lab) as frozen:
                _hand_over(lab)
                stood = {tier: batches(lab, tier, 1) for tier in SINKS}
                with without_zookeeper(lab):
                    thawed = time.time() * 1000
                    wake(frozen)
                    for tier in TIERS:
                        assert lab.driver(tier, 1).wait(200) == FENCED, lab.log(tier, 1)[-3000:]
                    for tier in SINKS:
                        assert "incarnation 2 has written by the owner record" in lab.log(tier, 1)
                    assert '"sluice-writers" names 2' in lab.log("enter", 1)
            until("ZooKeeper is back", lambda: lab.channel.connected)
            assert {tier: batches(lab, tier, 1) for tier in SINKS} == stood, (
                "the ledger took nothing of theirs"
            )
            _goes_on_from_the_owners_checkpoint(lab)
        until(
            "all is in the ledger",
            lambda: all(ends(lab, tier) == streams.bounds(["numbers"]).ends for tier in SINKS),
        )
        seen = everything(streams)
    late = [each for each in seen if each.out.by.startswith("enter/1") and each.out.at > thawed]
    late_seconds = max((each.out.at - thawed for each in late), default=0) / 1000
    print(f"given {len(given)}, put out {len(seen)}, late {len(late)} in {late_seconds:.1f} s")
    assert len({(each.out.partition, each.out.offset) for each in seen}) == len(given)
    assert late_seconds < FEW_SECONDS, "it stopped by the control topic"
    assert lab.query("select count(*), count(distinct n), sum(n) from stored") == [
        (len(given), len(given), sum(given))
    ]
    assert lab.query("select sum(hits), sum(ns) from tallied") == [(len(given), sum(given))]
    assert lab.query(HOLES) == []


def _move(lab: Lab) -> None:
    """Have the tiers work, and the next incarnations of them ready on another host."""
    for tier in TIERS:
        lab.start_owner(tier, 1, "h1")
    until("all of them work", lambda: all(batches(lab, tier, 1) > 1 for tier in SINKS))
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
    until("the new ones go on", lambda: all(batches(lab, tier, 2) > 1 for tier in SINKS))


def _goes_on_from_the_owners_checkpoint(lab: Lab) -> None:
    """Whoever comes next begins from what the second one has left, and removes what the first one has written beside it."""
    lab.set_owner("tally", 2, stopped=True)
    lab.wait_for("tally", 2, State.STOPPED)
    lab.stop("tally", 2)
    lab.start_owner("tally", 3, "h3")
    until("the next one counts", lambda: batches(lab, "tally", 3) > 1)
    assert re.search(r"begins from a checkpoint.* of=2\.\d", lab.log("tally", 3))
    folder = lab.home / "checkpoints" / "tally"
    until("what others have left is gone", lambda: {run.name for run in folder.glob("[0-9]*")} == {"3.0"})
