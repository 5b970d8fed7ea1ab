"""The disk of a tier's checkpoints is full or slow: what is waited for, what is said, and what is no failure of the tier's."""

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
from tests.unit.sluice.test_sink_queries import query

SPARKS = (
    "Query by-window terminated with exception: Job aborted due to stage failure: Task 0 in stage 5.0 failed 4 times, most recent failure: "
    "Lost task 0.3: org.apache.spark.SparkException: [CANNOT_WRITE_STATE_STORE.CANNOT_COMMIT] Caused by: java.io.IOException: No space "
    "left on device"
)


class Disk:
    """A depot whose disk is full, or takes its time."""

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


def says(flow: Flow, what: str | None) -> bool:
    end = time.monotonic() + 5
    while time.monotonic() < end:
        if flow.waits_for == what or (what is not None and what in (flow.waits_for or "")):
            return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize(
    ("error", "is_full"),
    [
        (RuntimeError(SPARKS), True),
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


def test_a_folder_is_probed_and_nothing_is_left_of_it(tmp_path: Path) -> None:
    require_room(Folder(tmp_path / "checkpoints" / "by-window"))
    assert list((tmp_path / "checkpoints" / "by-window").iterdir()) == []


def test_where_there_is_no_room_it_says_where_and_what_to_do(disk: Disk) -> None:
    disk.error = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(
        DiskFullError, match="the disk of /shared/checkpoints/by-window is full: make room there"
    ):
        require_room(cast("Depot", disk))
    disk.error = OSError(errno.EACCES, "Permission denied")
    with pytest.raises(PermissionError):
        require_room(cast("Depot", disk))


def test_a_full_and_a_slow_disk_are_told_until_they_are_neither(disk: Disk) -> None:
    flow = Flow()
    watch = CheckpointDisk(cast("Depot", disk), flow)
    watch.start()
    disk.error = OSError(errno.ENOSPC, "No space left on device")
    assert says(flow, "is full: make room there")
    disk.error = None
    assert says(flow, None)
    disk.quick.clear()
    assert says(flow, "takes more than 0.1 s to write a small file")
    disk.quick.set()
    assert says(flow, None)
    watch.stop()
    looks = disk.looks
    time.sleep(0.1)
    assert disk.looks <= looks + 1


def test_a_query_that_a_full_disk_has_ended_is_begun_again_however_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [1000.0]
    monkeypatch.setattr(batch_engine.time, "monotonic", lambda: now[0])
    made = query()
    for _ in range(100):
        made._query = cast("Any", SimpleNamespace(isActive=False, exception=lambda: RuntimeError(SPARKS)))
        made.check()
        assert made._config.flow.away is not None
        now[0] += 10
        made.check()
    assert len(made.begun) == 100
    assert made._config.flow.restarts == 0, "new code is not on trial for it"
    assert made._config.flow.away is None
