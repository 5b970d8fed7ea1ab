"""A full or slow disk of a tier's checkpoints: the tier waits, names the disk, and does not count
as failed.
"""

import errno
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sluice.driver.control.wait_for_services import is_away
from sluice.driver.counters import Flow
from sluice.driver.engine import batch_engine
from sluice.driver.state import checkpoint_disk
from sluice.driver.state.checkpoint_disk import CheckpointDisk, require_room
from sluice.driver.state.checkpoint_store import Depot, Folder
from sluice.failures import DiskFullError, is_disk_full
from tests.unit.sluice.test_sink_engine import query

SPARKS_ERROR = (
    "Query by-window terminated with exception: Job aborted due to stage failure: "
    "Task 0 in stage 5.0 failed 4 times, most recent failure: "
    "Lost task 0.3: org.apache.spark.SparkException: "
    "[CANNOT_WRITE_STATE_STORE.CANNOT_COMMIT] Caused by: java.io.IOException: No space left on device"
)


class Disk:
    """A checkpoint store whose disk is full or slow."""

    def __init__(self) -> None:
        self.error: OSError | None = None
        self.quick = threading.Event()
        self.quick.set()
        self.looks = 0

    def __str__(self) -> str:
        return "/shared/checkpoints/by-window"

    def probe(self) -> None:
        self.looks += 1
        self.quick.wait(10)
        if self.error is not None:
            raise self.error


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    monkeypatch.setattr(checkpoint_disk, "EVERY_SECONDS", 0.01)
    monkeypatch.setattr(checkpoint_disk, "SLOW_SECONDS", 0.1)
    return Disk()


def shows(flow: Flow, message: str | None) -> bool:
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        if flow.waits_for == message or (message is not None and message in (flow.waits_for or "")):
            return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize(
    ("error", "is_full"),
    [
        (RuntimeError(SPARKS_ERROR), True),
        (OSError(errno.ENOSPC, "No space left on device"), True),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), True),
        (DiskFullError("full"), True),
        (OSError(errno.EACCES, "Permission denied"), False),
        (RuntimeError("the code fails"), False),
    ],
)
def test_only_a_full_disk_is_waited_for(error: Exception, is_full: bool) -> None:
    assert is_disk_full(error) is is_full
    assert is_away(error) is is_full


def test_a_probe_leaves_no_file_in_the_folder(tmp_path: Path) -> None:
    require_room(Folder(tmp_path / "checkpoints" / "by-window"))
    assert list((tmp_path / "checkpoints" / "by-window").iterdir()) == []


def test_a_full_disk_is_named_with_the_next_step(disk: Disk) -> None:
    disk.error = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(
        DiskFullError, match="the disk of /shared/checkpoints/by-window is full: make room there"
    ):
        require_room(cast("Depot", disk))
    disk.error = OSError(errno.EACCES, "Permission denied")
    with pytest.raises(PermissionError):
        require_room(cast("Depot", disk))


def test_a_full_or_slow_disk_is_shown_until_it_recovers(disk: Disk) -> None:
    flow = Flow()
    watch = CheckpointDisk(cast("Depot", disk), flow)
    watch.start()
    disk.error = OSError(errno.ENOSPC, "No space left on device")
    assert shows(flow, "is full: make room there")
    disk.error = None
    assert shows(flow, None)
    disk.quick.clear()
    assert shows(flow, "takes more than 0.1 s to write a small file")
    disk.quick.set()
    assert shows(flow, None)
    watch.stop()
    looks = disk.looks
    time.sleep(0.1)
    assert disk.looks <= looks + 1


def test_a_query_that_a_full_disk_ended_is_restarted_without_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [1000.0]
    monkeypatch.setattr(batch_engine.time, "monotonic", lambda: now[0])
    engine = query()
    for _ in range(100):
        engine._query = cast(
            "Any", SimpleNamespace(isActive=False, exception=lambda: RuntimeError(SPARKS_ERROR))
        )
        engine.check()
        assert engine._config.flow.away is not None
        now[0] += 10
        engine.check()
    assert len(engine.begun) == 100
    assert engine._config.flow.restarts == 0, "a full disk must not count against new code on trial"
    assert engine._config.flow.away is None
