"""An operator takes a savepoint while records flow, and goes back to it, with a real controller and
agents: with the same release, with another one, and refused.
"""

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
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
from tests.integration.sluice.state_feed import Feed, assert_windows, ends, feeding, table
from tests.integration.sluice.stateful_runs import PIPELINE_MODULE
from tests.lab import ROOT, Lab, until

__all__ = ["PIPELINE_MODULE"]
TIER, RATE = "by-window", 100
pytestmark = [pytest.mark.timeout(1800), pytest.mark.long]


@pytest.fixture(scope="module")
def site() -> str:
    return site_of(f"{TIER}: {{minimum: 1, target: 1, maximum: 2}}")


@pytest.fixture(scope="module")
def running(lab: Lab, feed: Feed) -> Iterator[Lab]:
    with operated(lab):
        sluice(lab, "start", TIER)
        feed.hits(500)
        until("the tier counts", lambda: ends(lab, TIER))
        yield lab


@pytest.fixture
def publish(lab: Lab, tmp_path: Path) -> Callable[..., str]:
    """Publish the pipeline with edits; return the release."""
    return partial(publish_edited, lab, tmp_path)


def refused(lab: Lab, *words: str) -> str:
    """Return the message of a command that is refused."""
    done = subprocess.run(
        command(*words), env=lab.env, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stderr


def stop(lab: Lab) -> None:
    sluice(lab, "stop", TIER)
    until("the tier is stopped", lambda: tier_line(lab, TIER)["state"] == "stopped")


def batches(lab: Lab) -> int:
    return int(lab.query("select count(*) from ledger")[0][0])


def go_on(lab: Lab) -> None:
    begun = batches(lab)
    until("the tier has written more batches", lambda: batches(lab) > begun + 3)


def owner(lab: Lab) -> int:
    record = lab.channel.read(paths.owner(TIER), OwnerRecord)
    assert record is not None
    return record.value.owner or 0


def report(lab: Lab, number: int) -> IncarnationReport | None:
    node = lab.channel.read(paths.report(TIER, number), IncarnationReport)
    return None if node is None else node.value


def began_at(lab: Lab, before: int) -> dict[str, int]:
    """Return where the first incarnation after `before` began, once it runs."""

    def positions() -> dict[str, int] | None:
        running = report(lab, before + 1)
        started = None if running is None or running.state is not State.RUNNING else running.started_from
        return None if started is None else started.positions

    return until("the tier runs again", positions)


def places(lab: Lab, name: str) -> dict[str, int]:
    """Return where a savepoint ends."""
    about = lab.home / "checkpoints" / TIER / "savepoints" / name / "about"
    return dict(json.loads(about.read_text())["ends"])


def trail(lab: Lab) -> list[Any]:
    return [line["what"] for line in sluice(lab, "trail", "--last", "100")]


def test_a_tier_goes_back_while_records_flow_and_its_driver_is_killed(running: Lab, feed: Feed) -> None:
    with ExitStack() as feeds:
        feeds.enter_context(feeding(feed, RATE))
        go_on(running)
        taken = sluice(running, "savepoint", TIER, "first")
        assert (taken["tier"], taken["name"]) == (TIER, "first")
        assert "has a savepoint first already" in refused(running, "savepoint", TIER, "first")
        assert "lower-case letters" in refused(running, "savepoint", TIER, "../first")
        assert [line["name"] for line in sluice(running, "savepoints")] == ["first"]
        go_on(running)
        message = refused(running, "start", TIER, "--from", "first")
        assert f"{TIER} is running: only a stopped tier starts from a savepoint" in message
        before = owner(running)
        stop(running)
        message = refused(running, "start", TIER, "--from", "first")
        assert "window-changes: rows that come out differently" in message
        assert "its savepoints: first" in refused(running, "start", TIER, "--from", "second", "--yes")
        dry = sluice(running, "start", TIER, "--from", "first", "--yes", "--dry-run")
        assert dry["again"] > 0
        assert tier_line(running, TIER)["state"] == "stopped", "a dry run starts nothing"

        sluice(running, "start", TIER, "--from", "first", "--yes")
        assert began_at(running, before) == places(running, "first")
        began = report(running, before + 1)
        assert began is not None
        psutil.Process(began.pid).kill()
        until("the next driver runs", lambda: owner(running) > before + 1)
        go_on(running)
    assert_windows(running, feed)
    assert f"savepoint first of {TIER}" in trail(running)
    assert f"start {TIER} from savepoint first" in trail(running)


def test_another_release_goes_back_and_counts_what_came_since(
    running: Lab, feed: Feed, publish: Callable[..., str]
) -> None:
    with feeding(feed, RATE):
        sluice(running, "savepoint", TIER, "before-marks")
        go_on(running)
    assert_windows(running, feed)
    stop(running)
    before, number = table(running, "windows", 2), owner(running)
    marked = publish(result=MARKED)
    assert sluice(running, "upgrade", TIER)["ok"]
    started = sluice(running, "start", TIER, "--from", "before-marks", "--yes")
    assert started["release"] == marked
    assert began_at(running, number) == places(running, "before-marks")
    feed.hits(200)
    assert_windows(running, feed, MARK)
    rows = table(running, "windows", 2)
    recounted = {key for key in before if rows[key][1] >= MARK}
    assert recounted, "the new code writes the rows of records that were counted before"
    assert recounted < before.keys(), "rows without records since the savepoint stay as they are"


def test_a_release_with_other_state_is_refused_before_anything_starts(
    running: Lab, feed: Feed, publish: Callable[..., str]
) -> None:
    good = tier_line(running, TIER)["release"]
    sluice(running, "savepoint", TIER, "of-sums")
    stop(running)
    before, other = owner(running), publish(sums=OTHER_STATE)
    assert sluice(running, "upgrade", TIER)["ok"]
    message = refused(running, "start", TIER, "--from", "of-sums", "--yes")
    assert f"{TIER} cannot continue from savepoint of-sums with release {other}: " in message
    assert "max(id)" in message
    assert f"`sluice upgrade {TIER} --release {good}`" in message
    wanted = running.channel.read(paths.wanted(TIER), TierWanted)
    assert wanted is not None
    assert not wanted.value.running
    assert owner(running) == before
    # the remedy of the message
    assert sluice(running, "upgrade", TIER, "--release", good)["ok"]
    sluice(running, "start", TIER, "--from", "of-sums", "--yes")
    assert began_at(running, before) == places(running, "of-sums")
    feed.hits(200)
    assert_windows(running, feed, MARK)


def test_a_savepoint_whose_later_records_are_gone_is_refused(running: Lab, feed: Feed) -> None:
    sluice(running, "savepoint", TIER, "too-old")
    feed.hits(200)
    assert_windows(running, feed, MARK)
    stop(running)
    with closing(Streams(running.endpoints.kafka)) as streams:
        until_place = streams.bounds(["hits"]).ends
    admin = AdminClient({"bootstrap.servers": running.endpoints.kafka})
    deleted = admin.delete_records(
        [TopicPartition(*topic_and_number(place), end) for place, end in until_place.items()]
    )
    assert all(future.result(30) for future in deleted.values())
    message = refused(running, "start", TIER, "--from", "too-old", "--yes")
    assert "records after the savepoint are gone from Kafka" in message
    assert "hits/0: offsets" in message
    assert sluice(running, "savepoint", TIER, "too-old", "--remove")["removed"] == "too-old"
    assert "too-old" not in [line["name"] for line in sluice(running, "savepoints")]
    # the tier itself goes on
    sluice(running, "start", TIER)
    feed.hits(200)
    assert_windows(running, feed, MARK)
