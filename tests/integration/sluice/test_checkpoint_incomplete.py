"""A driver is killed and parts of its checkpoint are gone: the next driver reports it, and counts
each record once.

If the state can be neither read nor rebuilt, the tier stops and names the remedy. It never starts
with an empty state.
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
from tests.integration.sluice.state_feed import Feed, assert_windows, ends, feeding, table
from tests.integration.sluice.stateful_runs import PIPELINE_MODULE
from tests.lab import Lab, until

__all__ = ["PIPELINE_MODULE"]
pytestmark = [pytest.mark.timeout(900), pytest.mark.long]
TIER, RATE = "by-window", 50
REBUILT = "the state is built again from the tier's first record on"


def last_batch(run: Path, log: str) -> int:
    """Return the last batch in one of Spark's logs, `offsets` or `commits`."""
    return max(int(path.name) for path in (run / log).glob("[0-9]*"))


def truncate_last_offsets(run: Path) -> None:
    """Truncate Spark's log of offsets for its last committed batch by half."""
    log = run / "offsets" / str(last_batch(run, "commits"))
    log.write_bytes(log.read_bytes()[: log.stat().st_size // 2])


DAMAGES: tuple[tuple[Callable[[Path], None], str], ...] = (
    (lambda run: (run / "metadata").unlink(), "begins from a checkpoint"),
    (truncate_last_offsets, "a damaged checkpoint is skipped"),
    (lambda run: shutil.rmtree(run / "offsets"), REBUILT),
    (lambda run: shutil.rmtree(run / "commits"), REBUILT),
    (lambda run: shutil.rmtree(run / "state"), REBUILT),
)
"""How the run's folder is damaged, and what the next driver logs."""


def kill(lab: Lab, number: int) -> Path:
    """Kill the driver and its JVM; return the folder of its last run."""
    driver = psutil.Process(lab.driver(TIER, number).pid)
    for process in (driver, *driver.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGKILL)
    lab.stop(TIER, number)
    return last_run(lab)


def last_run(lab: Lab) -> Path:
    """Return the folder of the checkpoint of the tier's last run."""
    return max(
        (lab.home / "checkpoints" / TIER).glob("[0-9]*"),
        key=lambda path: tuple(map(int, path.name.split("."))),
    )


def commits(lab: Lab, number: int) -> int:
    """Return how many batches an incarnation has written."""
    query = f"select count(*) from ledger where tier = '{TIER}' and incarnation = {number}"  # noqa: S608
    rows = lab.query(query)
    return int(rows[0][0])


def begin(lab: Lab, number: int) -> None:
    lab.start_owner(TIER, number, "h1")
    folder = lab.home / "checkpoints" / TIER
    until("the incarnation has written batches", lambda: commits(lab, number) > 3)
    until(
        "checkpoints of earlier incarnations are deleted",
        lambda: {path.name.partition(".")[0] for path in folder.glob("[0-9]*")} == {str(number)},
    )


def expire(lab: Lab, before: dict[str, int]) -> None:
    """Delete the records before these offsets, as retention does."""
    places = [
        TopicPartition(name.rpartition("/")[0], int(name.rpartition("/")[2]), offset)
        for name, offset in before.items()
    ]
    admin = AdminClient({"bootstrap.servers": lab.endpoints.kafka})
    for deletion in admin.delete_records(places).values():
        deletion.result(30)


def test_missing_parts_are_reported_and_no_record_is_counted_twice(
    lab: Lab, feed: Feed, tmp_path: Path
) -> None:
    number = 1
    with feeding(feed, RATE):
        begin(lab, number)
        for damage, log_text in DAMAGES:
            damage(kill(lab, number))
            number += 1
            begin(lab, number)
            assert re.search(re.escape(log_text), lab.log(TIER, number)), lab.log(TIER, number)[-3000:]
    assert_windows(lab, feed)

    # The checkpoint and its records are both gone.
    written = last_run(lab)
    until(  # the ledger has a batch before Spark's own log of commits has it
        "Spark has committed the last batch",
        lambda: last_batch(written, "commits") == last_batch(written, "offsets"),
    )
    run = kill(lab, number)
    kept, before, batches = (
        tmp_path / "kept",
        (ends(lab, TIER), table(lab, "windows", 2)),
        commits(lab, number),
    )
    shutil.copytree(run, kept)
    shutil.rmtree(run / "commits")
    assert before[0] is not None
    expire(lab, {place: end - 1 for place, end in before[0].items()})
    lab.start_owner(TIER, number + 1, "h1")
    error = lab.wait_for(TIER, number + 1, State.FAILED).error or ""
    assert "has no checkpoint of any of the last" in error
    assert "restore the checkpoints" in error
    assert (commits(lab, number), commits(lab, number + 1)) == (batches, 0)
    assert (ends(lab, TIER), table(lab, "windows", 2)) == before, "the earlier output is unchanged"
    lab.stop(TIER, number + 1)

    # The checkpoint is restored.
    shutil.rmtree(run)
    shutil.copytree(kept, run)
    lab.start_owner(TIER, number + 2, "h1")
    feed.hits(500)
    assert_windows(lab, feed)
    assert re.search(rf"begins from a checkpoint.* of={re.escape(run.name)}", lab.log(TIER, number + 2))
