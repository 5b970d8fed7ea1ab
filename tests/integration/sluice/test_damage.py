"""Files of a checkpoint that are damaged: an older checkpoint is taken, or the state is made again;
what the table says stays right.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sluice.driver.state.checkpoint_store import Folder
from tests.integration.sluice.given import Feed, equation, table, windows
from tests.integration.sluice.runs import PIPELINE_MODULE, Runs
from tests.lab import Lab

__all__ = ["PIPELINE_MODULE"]
pytestmark = [pytest.mark.timeout(1500), pytest.mark.long]


def cut_short(content: bytes) -> bytes:
    return content[: len(content) // 2]


def another_bit(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


def emptied(_content: bytes) -> bytes:
    return b""


def damage(path: Path, how: Callable[[bytes], bytes]) -> None:
    """Write other bytes where the file is, as a disk does: every name that the file has is
    concerned.
    """
    with path.open("r+b") as file:
        content = how(file.read())
        file.seek(0)
        file.write(content)
        file.truncate()


def test_what_is_damaged_is_not_begun_from(lab: Lab, driver_session: SparkSession, feed: Feed) -> None:
    runs = Runs(lab, driver_session, "by-window", 1, 1)
    folder = lab.home / "checkpoints" / "by-window"
    depot = Folder(folder)

    def flow(engine: object) -> None:
        for _ in range(3):
            feed.hits(100)
            runs.wait_level(engine)  # type: ignore[arg-type]

    engine = runs.start(1)
    flow(engine)
    number = 1
    for what in (
        "state/0/0/{version}.changelog",
        "state/1/1/{version}.changelog",
        "offsets/{batch}",
        "commits/{batch}",
    ):
        for how in (cut_short, another_bit, emptied):
            engine.hold()
            run = max(folder.glob("*.*"), key=lambda path: tuple(map(int, path.name.split("."))))
            assert [name for name in depot.names(run.name) if not depot.is_whole(f"{run.name}/{name}")] == []
            batch = max(int(path.name) for path in (run / "commits").glob("[0-9]*"))
            damage(run / what.format(batch=batch, version=batch + 1), how)
            number += 1
            runs.set_owner(number)
            engine = runs.start(number)
            flow(engine)
            assert table(lab, "windows", 2) == windows(feed.records["hits"]), (what, how)
    # nothing at all can be loaded
    engine.hold()
    for path in folder.glob("*.*/state/*/*/[0-9]*.*"):
        damage(path, cut_short)
    runs.set_owner(number + 1)
    engine = runs.start(number + 1)
    flow(engine)
    assert table(lab, "windows", 2) == windows(feed.records["hits"])
    assert equation(lab, "by-window") == feed.equation("hits")
    runs.end()
