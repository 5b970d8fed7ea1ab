"""New code of a tier with state, while records flow, with a real controller and agents: upgraded,
refused, or rolled back.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from sluice_ops.model import paths
from sluice_ops.model.incarnation import OwnerRecord
from tests.integration.sluice.edited_release import MARK, MARKED, OTHER_STATE, publish_edited
from tests.integration.sluice.operated_lab import operated, site_of, sluice, steps, tier_line
from tests.integration.sluice.state_feed import Feed, assert_windows, ends, equation, feeding, table
from tests.integration.sluice.stateful_runs import PIPELINE_MODULE
from tests.lab import Lab, until

__all__ = ["PIPELINE_MODULE"]
TIER, RATE = "by-window", 100
WHO = 'F.when(F.col("who") == "{who}", {replacement}).otherwise(F.col("who")).alias("who")'
FAILING_NAME = 'F.raise_error(F.lit("cannot take this one"))'
SLEPT = 'F.java_method(F.lit("java.lang.Thread"), F.lit("sleep"), F.lit(30000).cast("bigint"))'
SLOW_NAME = f'F.concat("who", F.substring({SLEPT}, 1, 0))'
"""Does not change the name: with another key, the earlier row would stay in the table."""
pytestmark = [pytest.mark.timeout(1800), pytest.mark.long]


@pytest.fixture(scope="module")
def site() -> str:
    return site_of(f"{TIER}: {{minimum: 1, target: 1, maximum: 2}}")


@pytest.fixture(scope="module")
def running(lab: Lab, feed: Feed) -> Iterator[Lab]:
    with operated(lab):
        feed.hits(500)
        sluice(lab, "start", TIER)
        until("the tier counts", lambda: ends(lab, TIER))
        yield lab


@pytest.fixture
def publish(lab: Lab, tmp_path: Path) -> Callable[..., str]:
    """Publish the pipeline with edits; return the release."""
    return partial(publish_edited, lab, tmp_path)


def owner(lab: Lab) -> int | None:
    record = lab.channel.read(paths.owner(TIER), OwnerRecord)
    return None if record is None else record.value.owner


def test_code_that_can_use_the_state_is_upgraded(
    running: Lab, feed: Feed, publish: Callable[..., str]
) -> None:
    with feeding(feed, RATE):
        good = publish(result=MARKED)
        change = sluice(running, "upgrade", TIER)
    assert change["ok"], change
    assert "did well" in steps(change)["trial"]["sentence"]
    assert tier_line(running, TIER)["release"] == good
    assert_windows(running, feed, MARK)
    assert any(ids >= MARK for _, ids in table(running, "windows", 2).values()), "the new code writes"


@pytest.mark.parametrize(
    ("who", "replacement", "reason"),
    [
        pytest.param("user-5", FAILING_NAME, "cannot take this one", id="fails on a record"),
        pytest.param(
            "user-6",
            SLOW_NAME,
            r"none of \d+ waiting records was processed|in that time; \d+ wait",
            id="is too slow",
        ),
        pytest.param("user-6", None, "no output from", id="writes nothing"),
    ],
)
def test_code_that_does_worse_is_rolled_back(
    running: Lab, feed: Feed, publish: Callable[..., str], who: str, replacement: str | None, reason: str
) -> None:
    line = tier_line(running, TIER)
    with feeding(feed, RATE):
        result = (
            f"{MARKED}.where('hits < 0')"
            if replacement is None
            else MARKED.replace('"who"', WHO.format(who=who, replacement=replacement), 1)
        )
        bad = publish(result=result)
        with ThreadPoolExecutor() as pool:
            upgrade = pool.submit(sluice, running, "upgrade", TIER)
            until(
                "the new code owns the tier", lambda: upgrade.done() or owner(running) != line["incarnation"]
            )
            feed.people = int(who.removeprefix("user-")) + 1
            result = upgrade.result()
    sentence = steps(result)["trial"]["sentence"]
    assert f"does not do well on release {bad}" in sentence
    assert re.search(reason, sentence), sentence
    assert f"it rolls back to {line['release']} by itself" in sentence
    assert steps(result)["abort"]["ok"], result
    after = tier_line(running, TIER)
    assert after["release"] == line["release"]
    assert after["incarnation"] >= line["incarnation"] + 2, "one incarnation was tried, and one rolled back"
    assert_windows(running, feed, MARK)


def test_code_with_other_state_is_refused_and_can_start_over_by_hand(
    running: Lab, feed: Feed, publish: Callable[..., str]
) -> None:
    line, other = tier_line(running, TIER), publish(sums=OTHER_STATE)
    with feeding(feed, RATE):
        refused = sluice(running, "upgrade", TIER)
    sentence = steps(refused)["preflight"]["sentence"]
    assert (
        f'tier "{TIER}" cannot be handed over from {line["release"]} to {other}: '
        "the state of the new code holds Aggregate of who, window(" in sentence
    )
    assert "count(1), max(id), and the checkpoint holds Aggregate of who, window(" in sentence
    assert (
        f"`sluice stop {TIER}`, `sluice upgrade {TIER} --release {other}`, `sluice start {TIER}`" in sentence
    )
    assert steps(refused).keys() == {"preflight"}
    assert owner(running) == line["incarnation"]
    assert_windows(running, feed, MARK)

    # The remedy of the message: the state is rebuilt from the first record.
    sluice(running, "stop", TIER)
    until("the tier is stopped", lambda: tier_line(running, TIER)["state"] == "stopped")
    assert sluice(running, "upgrade", TIER)["ok"]
    sluice(running, "start", TIER)
    feed.hits(200)
    until("every row is written by the new code", lambda: table(running, "windows", 2) == largest(feed))
    # the last record may be a replay or late, and changes no row
    until("the ledger has every record", lambda: equation(running, TIER) == feed.equation("hits"))


def largest(feed: Feed) -> dict[tuple[str, datetime], tuple[int, int]]:
    """Return the number of hits and the largest id of each window."""
    ids_by_window: dict[tuple[str, datetime], list[int]] = defaultdict(list)
    for hit in feed.records["hits"]:
        ids_by_window[hit["who"], datetime.fromtimestamp(hit["at"] // 10_000 * 10, UTC)].append(hit["id"])
    return {key: (len(ids), max(ids)) for key, ids in ids_by_window.items()}
