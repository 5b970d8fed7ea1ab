"""Parts of a checkpoint are gone when a driver is killed while records flow: whoever goes on says so, and counts nothing twice or not.

Where the state can neither be read nor made again, the tier stops and says how to go on: it never begins with an empty one.
"""

import re
import shutil
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from sluice_ops.model.incarnation import State
from tests.integration.sluice.given import Feed, ends, giving, table, windows_are_right
from tests.integration.sluice.runs import PIPELINE_MODULE
from tests.lab import Lab, until

__all__ = ["PIPELINE_MODULE"]
pytestmark = [pytest.mark.timeout(900), pytest.mark.long]
TIER, RATE = "by-window", 50
AGAIN = "the state is built again from the tier's first record on"


def cut_last_offsets(run: Path) -> None:
    """Leave half of what Spark logged before its last committed batch."""
    last = max(int(path.name) for path in (run / "commits").glob("[0-9]*"))
    log = run / "offsets" / str(last)
    log.write_bytes(log.read_bytes()[: log.stat().st_size // 2])


DAMAGES: tuple[tuple[Callable[[Path], None], str], ...] = (
    (lambda run: (run / "metadata").unlink(), "begins from a checkpoint"),
    (cut_last_offsets, "a damaged checkpoint is skipped"),
    (lambda run: shutil.rmtree(run / "offsets"), AGAIN),
    (lambda run: shutil.rmtree(run / "commits"), AGAIN),
    (lambda run: shutil.rmtree(run / "state"), AGAIN),
)
"""What is done to the run's folder, and what whoever goes on says."""


def kill(lab: Lab, number: int) -> Path:
    """Kill the driver with its JVM; return the folder of its last run."""
    driver = psutil.Process(lab.driver(TIER, number).pid)
    for process in (driver, *driver.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGKILL)
    lab.stop(TIER, number)
    return max(
        (lab.home / "checkpoints" / TIER).glob("[0-9]*"),
        key=lambda path: tuple(map(int, path.name.split("."))),
    )


def commits(lab: Lab, number: int) -> int:
    """Return how many batches an incarnation has written."""
    found = lab.query(f"select count(*) from ledger where tier = '{TIER}' and incarnation = {number}")  # noqa: S608 - of this test's own
    return int(found[0][0])


def begin(lab: Lab, number: int) -> None:
    lab.start_owner(TIER, number, "h1")
    folder = lab.home / "checkpoints" / TIER
    until("it has batches of its own", lambda: commits(lab, number) > 3)
    until(
        "what others have left is gone",
        lambda: {path.name.partition(".")[0] for path in folder.glob("[0-9]*")} == {str(number)},
    )


def cut_off(lab: Lab, before: dict[str, int]) -> None:
    """Take away what lies before, as retention does."""
    places = [
        TopicPartition(name.rpartition("/")[0], int(name.rpartition("/")[2]), offset)
        for name, offset in before.items()
    ]
    admin = AdminClient({"bootstrap.servers": lab.endpoints.kafka})
    for done in admin.delete_records(places).values():
        done.result(30)


def test_what_is_gone_is_said_and_nothing_is_counted_twice(lab: Lab, feed: Feed, tmp_path: Path) -> None:
    number = 1
    with giving(feed, RATE):
        begin(lab, number)
        for damage, says in DAMAGES:
            damage(kill(lab, number))
            number += 1
            begin(lab, number)
            assert re.search(re.escape(says), lab.log(TIER, number)), lab.log(TIER, number)[-3000:]
    windows_are_right(lab, feed)

    # neither a checkpoint nor the records that it was made of
    run = kill(lab, number)
    kept, before, batches = (
        tmp_path / "kept",
        (ends(lab, TIER), table(lab, "windows", 2)),
        commits(lab, number),
    )
    shutil.copytree(run, kept)
    shutil.rmtree(run / "commits")
    assert before[0] is not None
    cut_off(lab, {place: end - 1 for place, end in before[0].items()})
    lab.start_owner(TIER, number + 1, "h1")
    error = lab.wait_for(TIER, number + 1, State.FAILED).error or ""
    assert "has no checkpoint of any of the last" in error
    assert "bring it back" in error
    assert (commits(lab, number), commits(lab, number + 1)) == (batches, 0)
    assert (ends(lab, TIER), table(lab, "windows", 2)) == before, "nothing was written over"
    lab.stop(TIER, number + 1)

    # it is brought back
    shutil.rmtree(run)
    shutil.copytree(kept, run)
    lab.start_owner(TIER, number + 2, "h1")
    feed.hits(500)
    windows_are_right(lab, feed)
    assert re.search(rf"begins from a checkpoint.* of={re.escape(run.name)}", lab.log(TIER, number + 2))
