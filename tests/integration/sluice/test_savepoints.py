"""An operator takes a savepoint while records flow, and goes back to it, with a real controller and
agents: with the same release, with another one, and refused.

One tier has windows; the other one has windows after two joins, so its rows are written when they
are final.
"""

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from sluice.kafka.reader import Streams, topic_and_number
from sluice_ops.model import paths
from sluice_ops.model.incarnation import IncarnationReport, OwnerRecord, State, TierWanted
from tests.integration.sluice.edited_release import MARK, MARKED, OTHER_STATE, publish_edited
from tests.integration.sluice.operated_lab import command, operated, site_of, sluice, tier_line
from tests.integration.sluice.state_feed import Feed, assert_paid, assert_windows, ends, feeding
from tests.integration.sluice.stateful_runs import PIPELINE_MODULE
from tests.lab import ROOT, Lab, until

__all__ = ["PIPELINE_MODULE"]
RATE = 100
pytestmark = [pytest.mark.timeout(1800), pytest.mark.long]


@dataclass(frozen=True)
class Case:
    """A tier, its table, the transform to edit, how its input is written, and its assertion."""

    tier: str
    table: str
    transform: str
    write: Callable[[Feed, int], None]
    assert_right: Callable[..., None]


CHAIN = Case("paid", "paid", "paid", Feed.paid, assert_paid)
WINDOWS = Case("by-window", "windows", "by_window", Feed.hits, assert_windows)


@dataclass(frozen=True)
class Running:
    """The tier of a case, which runs in a lab."""

    case: Case
    lab: Lab
    feed: Feed

    def sluice(self, what: str, *words: str) -> Any:
        return sluice(self.lab, what, self.case.tier, *words)

    def refused(self, what: str, *words: str) -> str:
        """Return the message of a command that is refused."""
        done = subprocess.run(
            command(what, self.case.tier, *words),
            env=self.lab.env,
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 1, done.stdout + done.stderr
        return done.stderr

    @property
    def line(self) -> Any:
        return tier_line(self.lab, self.case.tier)

    @property
    def savepoints(self) -> list[str]:
        return [line["name"] for line in sluice(self.lab, "savepoints") if line["tier"] == self.case.tier]

    def about(self, name: str) -> Any:
        """Return the description of a savepoint."""
        folder = self.lab.home / "checkpoints" / self.case.tier / "savepoints" / name
        return json.loads((folder / "about").read_text())

    def stop(self) -> None:
        self.sluice("stop")
        until("the tier is stopped", lambda: self.line["state"] == "stopped")

    def write(self, count: int) -> None:
        self.case.write(self.feed, count)

    def feeding(self) -> AbstractContextManager[None]:
        return feeding(self.feed, RATE, self.write)

    def assert_right(self, *mark: int) -> None:
        self.case.assert_right(self.lab, self.feed, *mark)

    def rows(self) -> dict[tuple[Any, ...], tuple[Any, ...]]:
        """Return the hits, the ids and the ledger's batch of each key."""
        return {row[:2]: row[2:] for row in self.lab.query(f"select * from {self.case.table}")}  # noqa: S608

    @property
    def batch(self) -> int:
        """The tier's last batch in the ledger."""
        query = f"select max(batch) from ledger where tier = '{self.case.tier}'"  # noqa: S608
        return int(self.lab.query(query)[0][0])

    def go_on(self) -> None:
        begun = self.batch
        until("the tier has written more batches", lambda: self.batch > begun + 3)

    @property
    def owner(self) -> int:
        record = self.lab.channel.read(paths.owner(self.case.tier), OwnerRecord)
        assert record is not None
        return record.value.owner or 0

    def report(self, number: int) -> IncarnationReport | None:
        node = self.lab.channel.read(paths.report(self.case.tier, number), IncarnationReport)
        return None if node is None else node.value

    def began_at(self, before: int) -> dict[str, int]:
        """Return where the first incarnation after `before` began, once it runs."""

        def positions() -> dict[str, int] | None:
            running = self.report(before + 1)
            started = None if running is None or running.state is not State.RUNNING else running.started_from
            return None if started is None else started.positions

        return until("the tier runs again", positions)


@pytest.fixture(scope="module")
def site() -> str:
    return site_of(
        ", ".join(f"{case.tier}: {{minimum: 1, target: 1, maximum: 2}}" for case in (CHAIN, WINDOWS))
    )


@pytest.fixture(scope="module")
def operated_lab(lab: Lab) -> Iterator[Lab]:
    with operated(lab):
        yield lab


@pytest.fixture(scope="module", params=[CHAIN, WINDOWS], ids=lambda case: case.tier)
def running(request: pytest.FixtureRequest, operated_lab: Lab, feed: Feed) -> Iterator[Running]:
    running = Running(request.param, operated_lab, feed)
    running.sluice("start")
    running.write(500)
    until("the tier counts", lambda: ends(operated_lab, running.case.tier))
    yield running
    running.stop()


@pytest.fixture
def publish(running: Running, tmp_path: Path) -> Callable[..., str]:
    """Publish the pipeline with edits of the tier's transform; return the release."""
    return partial(publish_edited, running.lab, tmp_path, transform=running.case.transform)


def test_a_tier_goes_back_while_records_flow_and_its_driver_is_killed(running: Running) -> None:
    tier = running.case.tier
    with ExitStack() as feeds:
        feeds.enter_context(running.feeding())
        running.go_on()
        taken = running.sluice("savepoint", "first")
        assert (taken["tier"], taken["name"]) == (tier, "first")
        assert "has a savepoint first already" in running.refused("savepoint", "first")
        assert "lower-case letters" in running.refused("savepoint", "../first")
        assert running.savepoints == ["first"]
        running.go_on()
        message = running.refused("start", "--from", "first")
        assert f"{tier} is running: only a stopped tier starts from a savepoint" in message
        before = running.owner
        running.stop()
        assert "its savepoints: first" in running.refused("start", "--from", "second", "--yes")
        dry = running.sluice("start", "--from", "first", "--yes", "--dry-run")
        assert dry["again"] > 0
        assert running.line["state"] == "stopped", "a dry run starts nothing"

        running.sluice("start", "--from", "first", "--yes")
        assert running.began_at(before) == running.about("first")["ends"]
        began = running.report(before + 1)
        assert began is not None
        psutil.Process(began.pid).kill()
        until("the next driver runs", lambda: running.owner > before + 1)
        running.go_on()
    running.assert_right()
    trail = [line["what"] for line in sluice(running.lab, "trail", "--last", "100")]
    assert f"savepoint first of {tier}" in trail
    assert f"start {tier} from savepoint first" in trail


def test_another_release_goes_back_and_counts_what_came_since(
    running: Running, publish: Callable[..., str]
) -> None:
    with running.feeding():
        running.go_on()
        last = running.batch
        running.sluice("savepoint", "before-marks")
        running.go_on()
    running.assert_right()
    running.stop()
    before, number = running.rows(), running.owner
    marked = publish(result=MARKED)
    assert running.sluice("upgrade")["ok"]
    started = running.sluice("start", "--from", "before-marks", "--yes")
    assert started["release"] == marked
    about = running.about("before-marks")
    assert about["number"] >= last - 1, "Spark commits a batch before the ledger has the next one"
    assert running.began_at(number) == about["ends"]
    running.write(200)
    running.assert_right(MARK)
    after = running.rows()
    kept = {key: row for key, row in before.items() if row[-1] <= about["number"]}
    assert kept, f"no row was written up to batch {about['number']}: {before}"
    assert {key: after[key] for key in kept} == kept, "rows that are written before it stay as they are"
    again = before.keys() - kept.keys()
    assert again, f"no row was written after batch {about['number']}: {before}"
    assert all(after[key][1] >= MARK for key in again), "the new code writes them again"


def test_a_release_with_other_state_is_refused_before_anything_starts(
    running: Running, publish: Callable[..., str]
) -> None:
    tier, good = running.case.tier, running.line["release"]
    running.sluice("savepoint", "of-sums")
    running.stop()
    before, other = running.owner, publish(sums=OTHER_STATE)
    assert running.sluice("upgrade")["ok"]
    message = running.refused("start", "--from", "of-sums", "--yes")
    assert f"{tier} cannot continue from savepoint of-sums with release {other}: " in message
    assert "max(id)" in message
    assert f"`sluice upgrade {tier} --release {good}`" in message
    wanted = running.lab.channel.read(paths.wanted(tier), TierWanted)
    assert wanted is not None
    assert not wanted.value.running
    assert running.owner == before
    # the remedy of the message
    assert running.sluice("upgrade", "--release", good)["ok"]
    running.sluice("start", "--from", "of-sums", "--yes")
    assert running.began_at(before) == running.about("of-sums")["ends"]
    running.write(200)
    running.assert_right(MARK)


@pytest.mark.parametrize("running", [WINDOWS], ids=["by-window"], indirect=True)
def test_a_savepoint_is_refused_without_yes_or_without_its_records(running: Running) -> None:
    running.sluice("savepoint", "too-old")
    running.write(200)
    running.assert_right(MARK)
    running.stop()
    message = running.refused("start", "--from", "too-old")
    assert "window-changes: rows that come out differently" in message
    kafka = running.lab.endpoints.kafka
    with closing(Streams(kafka)) as streams:
        until_place = streams.bounds(["hits"]).ends
    admin = AdminClient({"bootstrap.servers": kafka})
    deleted = admin.delete_records(
        [TopicPartition(*topic_and_number(place), end) for place, end in until_place.items()]
    )
    assert all(future.result(30) for future in deleted.values())
    message = running.refused("start", "--from", "too-old", "--yes")
    assert "records after the savepoint are gone from Kafka" in message
    assert "hits/0: offsets" in message
    assert running.sluice("savepoint", "too-old", "--remove")["removed"] == "too-old"
    assert "too-old" not in running.savepoints
    # the tier itself goes on
    running.sluice("start")
    running.write(200)
    running.assert_right(MARK)
