"""The disk of checkpoints is full, or slow: the tier pauses, says why, and goes on by itself; each record is counted once."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sluice_ops.model.incarnation import State
from tests.integration.sluice.given import Feed, giving, windows_are_right
from tests.integration.sluice.runs import PIPELINE_MODULE
from tests.integration.sluice.test_disk_full import fill
from tests.lab import Lab, until
from tests.power_loss import AVAILABLE
from tests.slow_disk import slow_disk

__all__ = ["PIPELINE_MODULE"]
pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.long,
    pytest.mark.skipif(
        not AVAILABLE or os.geteuid() != 0,
        reason="this test mounts file systems: it needs root and /dev/fuse",
    ),
]
TIER = "by-window"
DISK = "16m"
RATE = 50
OUTAGE_SECONDS = 60
"""Longer than a query's own failures are borne."""
SAID_SECONDS = 60
FLOWS_SECONDS = 60
CHANGE_SECONDS = 1.5
"""So long each change of a file takes on the slow disk: a batch has some sixty."""
LAG = "select coalesce(max(lag), 0) from tier_progress where tier = 'by-window'"


def lag(lab: Lab) -> int:
    """Return how many records wait for the tier in Kafka."""
    return int(lab.query(LAG)[0][0])


def batches(lab: Lab) -> int:
    return int(lab.query("select count(*) from ledger where tier = 'by-window'")[0][0])


def said(lab: Lab, number: int) -> str:
    """Return what the tier says that it waits for, as `sluice status` shows it."""
    report = lab.report(TIER, number)
    return "" if report is None else report.away or ""


@contextmanager
def small_disk(folder: Path, kept: Path) -> Iterator[Path]:
    """Mount a small disk; what is on it at the end is in `kept` afterwards."""
    folder.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(folder)], check=True)
    try:
        yield folder
        shutil.copytree(folder, kept)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def begin(lab: Lab, number: int) -> None:
    lab.start_owner(TIER, number, "h1")
    lab.wait_for(TIER, number, State.RUNNING)


def waits(lab: Lab, number: int, reason: str) -> int:
    """See that the tier says so, and that its backlog grows; return how many batches there were."""
    began = time.monotonic()
    until(f"it says that the disk {reason}", lambda: reason in said(lab, number), SAID_SECONDS)
    print(f"it said so after {time.monotonic() - began:.0f} s: {said(lab, number)}")
    stood = batches(lab)
    time.sleep(OUTAGE_SECONDS)
    assert batches(lab) <= stood + 1, "it pauses"
    assert lag(lab) > RATE * OUTAGE_SECONDS / 2, "records wait in Kafka"
    assert reason in said(lab, number)
    return batches(lab)


def goes_on(lab: Lab, number: int, stood: int) -> None:
    """See that it goes on by itself, in the same driver."""
    began = time.monotonic()
    until("batches are counted again", lambda: batches(lab) > stood + 1, FLOWS_SECONDS)
    until("what waited has drained", lambda: lag(lab) < 10 * RATE)
    print(f"drained after {time.monotonic() - began:.0f} s")
    until("it waits for nothing", lambda: not said(lab, number), SAID_SECONDS)
    report = lab.report(TIER, number)
    assert report is not None
    assert report.state is State.RUNNING, "the same driver all the while"


def end(lab: Lab, number: int) -> None:
    lab.set_owner(TIER, number, stopped=True)
    lab.wait_for(TIER, number, State.STOPPED)
    lab.stop(TIER, number)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the checkpoints are kept from one disk to the next."""
    return tmp_path_factory.mktemp("kept") / TIER


def test_a_tier_waits_for_room_and_goes_on(lab: Lab, feed: Feed, kept: Path) -> None:
    with small_disk(lab.home / "checkpoints" / TIER, kept) as disk:
        begin(lab, 1)
        with giving(feed, RATE):
            before = batches(lab)
            until("records are counted", lambda: batches(lab) > before + 5)
            filler = fill(disk)
            stood = waits(lab, 1, "is full: make room there")
            filler.unlink()
            goes_on(lab, 1, stood)
        windows_are_right(lab, feed)
        end(lab, 1)


def test_a_tier_waits_for_a_slow_disk_and_goes_on(lab: Lab, feed: Feed, kept: Path) -> None:
    with slow_disk(lab.home / "checkpoints" / TIER) as disk:
        shutil.copytree(kept, disk.folder, dirs_exist_ok=True)
        begin(lab, 2)
        with giving(feed, RATE):
            before = batches(lab)
            until("records are counted", lambda: batches(lab) > before + 5)
            disk.delay(CHANGE_SECONDS)
            stood = waits(lab, 2, "to write a small file")
            disk.delay(0.0)
            goes_on(lab, 2, stood)
        windows_are_right(lab, feed)
        end(lab, 2)
