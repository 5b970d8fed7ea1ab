"""Files of a checkpoint are damaged: an older checkpoint is used, or the state is rebuilt; the
table stays right.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sluice.driver.state.checkpoint_store import Folder
from tests.integration.sluice.state_feed import Feed, equation, table, windows
from tests.integration.sluice.stateful_runs import PIPELINE_MODULE, Runs
from tests.lab import Lab

__all__ = ["PIPELINE_MODULE"]
pytestmark = [pytest.mark.timeout(1500), pytest.mark.long]


def truncated(content: bytes) -> bytes:
    return content[: len(content) // 2]


def with_flipped_bit(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


def emptied(_content: bytes) -> bytes:
    return b""


def damage(path: Path, damaged: Callable[[bytes], bytes]) -> None:
    """Overwrite a file in place, as a disk does, so that all its hard links are damaged."""
    with path.open("r+b") as file:
        content = damaged(file.read())
        file.seek(0)
        file.write(content)
        file.truncate()


def test_no_driver_starts_from_a_damaged_checkpoint(
    lab: Lab, driver_session: SparkSession, feed: Feed
) -> None:
    runs = Runs(lab, driver_session, "by-window", 1, 1)
    folder = lab.home / "checkpoints" / "by-window"
    depot = Folder(folder)

    def feed_and_count(engine: object) -> None:
        for _ in range(3):
            feed.hits(100)
            runs.wait_level(engine)  # type: ignore[arg-type]

    engine = runs.start(1)
    feed_and_count(engine)
    number = 1
    for file_name in (
        "state/0/0/{version}.changelog",
        "state/1/1/{version}.changelog",
        "offsets/{batch}",
        "commits/{batch}",
    ):
        for damaged in (truncated, with_flipped_bit, emptied):
            engine.hold()
            run = max(folder.glob("*.*"), key=lambda path: tuple(map(int, path.name.split("."))))
            assert [name for name in depot.names(run.name) if not depot.is_whole(f"{run.name}/{name}")] == []
            batch = max(int(path.name) for path in (run / "commits").glob("[0-9]*"))
            damage(run / file_name.format(batch=batch, version=batch + 1), damaged)
            number += 1
            runs.set_owner(number)
            engine = runs.start(number)
            feed_and_count(engine)
            assert table(lab, "windows", 2) == windows(feed.records["hits"]), (file_name, damaged)
    # No checkpoint can be loaded.
    engine.hold()
    for path in folder.glob("*.*/state/*/*/[0-9]*.*"):
        damage(path, truncated)
    runs.set_owner(number + 1)
    engine = runs.start(number + 1)
    feed_and_count(engine)
    assert table(lab, "windows", 2) == windows(feed.records["hits"])
    assert equation(lab, "by-window") == feed.equation("hits")
    runs.end()
