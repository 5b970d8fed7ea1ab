"""The disk of the checkpoints is full or slow: the tier pauses, reports why, and continues by
itself; each record is counted once.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sluice_ops.model.incarnation import State
from tests.integration.sluice.state_feed import Feed, assert_windows, feeding
from tests.integration.sluice.stateful_runs import PIPELINE_MODULE
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
"""Longer than a query's own failures are retried."""
REPORT_SECONDS = 60
FLOWS_SECONDS = 60
CHANGE_SECONDS = 1.5
"""The time of each change of a file on the slow disk; a batch changes about sixty files."""
LAG = "select coalesce(max(lag), 0) from tier_progress where tier = 'by-window'"


def lag(lab: Lab) -> int:
    """Return the tier's lag in records."""
    return int(lab.query(LAG)[0][0])


def batches(lab: Lab) -> int:
    return int(lab.query("select count(*) from ledger where tier = 'by-window'")[0][0])


def reported_wait(lab: Lab, number: int) -> str:
    """Return what the tier reports that it waits for, as in `sluice status`."""
    report = lab.report(TIER, number)
    return "" if report is None else report.away or ""


@contextmanager
def small_disk(folder: Path, kept: Path) -> Iterator[Path]:
    """Mount a small disk; at the end, copy its files to `kept`."""
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


def assert_waits(lab: Lab, number: int, reason: str) -> int:
    """Assert that the tier reports the reason and its lag grows; return the number of its
    batches.
    """
    began = time.monotonic()
    until(
        f"the tier reports that the disk {reason}",
        lambda: reason in reported_wait(lab, number),
        REPORT_SECONDS,
    )
    print(f"the tier reported it after {time.monotonic() - began:.0f} s: {reported_wait(lab, number)}")
    batches_at_stop = batches(lab)
    time.sleep(OUTAGE_SECONDS)
    assert batches(lab) <= batches_at_stop + 1, "the tier pauses"
    assert lag(lab) > RATE * OUTAGE_SECONDS / 2, "records wait in Kafka"
    assert reason in reported_wait(lab, number)
    return batches(lab)


def assert_recovers(lab: Lab, number: int, batches_at_stop: int) -> None:
    """Assert that the tier continues by itself, in the same driver."""
    began = time.monotonic()
    until("batches are counted again", lambda: batches(lab) > batches_at_stop + 1, FLOWS_SECONDS)
    until("the lag has drained", lambda: lag(lab) < 10 * RATE)
    print(f"drained after {time.monotonic() - began:.0f} s")
    until("the tier waits for nothing", lambda: not reported_wait(lab, number), REPORT_SECONDS)
    report = lab.report(TIER, number)
    assert report is not None
    assert report.state is State.RUNNING, "the same driver runs on"


def end(lab: Lab, number: int) -> None:
    lab.set_owner(TIER, number, stopped=True)
    lab.wait_for(TIER, number, State.STOPPED)
    lab.stop(TIER, number)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder that keeps the checkpoints from one disk to the next."""
    return tmp_path_factory.mktemp("kept") / TIER


def test_a_tier_waits_for_space_and_continues(lab: Lab, feed: Feed, kept: Path) -> None:
    with small_disk(lab.home / "checkpoints" / TIER, kept) as disk:
        begin(lab, 1)
        with feeding(feed, RATE):
            before = batches(lab)
            until("records are counted", lambda: batches(lab) > before + 5)
            filler = fill(disk)
            batches_at_stop = assert_waits(lab, 1, "is full: make room there")
            filler.unlink()
            assert_recovers(lab, 1, batches_at_stop)
        assert_windows(lab, feed)
        end(lab, 1)


def test_a_tier_waits_for_a_slow_disk_and_continues(lab: Lab, feed: Feed, kept: Path) -> None:
    with slow_disk(lab.home / "checkpoints" / TIER) as disk:
        shutil.copytree(kept, disk.folder, dirs_exist_ok=True)
        begin(lab, 2)
        with feeding(feed, RATE):
            before = batches(lab)
            until("records are counted", lambda: batches(lab) > before + 5)
            disk.delay(CHANGE_SECONDS)
            batches_at_stop = assert_waits(lab, 2, "to write a small file")
            disk.delay(0.0)
            assert_recovers(lab, 2, batches_at_stop)
        assert_windows(lab, feed)
        end(lab, 2)
