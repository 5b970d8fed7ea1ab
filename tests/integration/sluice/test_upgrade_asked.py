"""New code of a tier with state, while records flow, by a controller and agents that are real:
taken on, refused, or left again.
"""

import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sluice_ops.model import paths
from sluice_ops.model.incarnation import OwnerRecord
from tests.integration.sluice import holding
from tests.integration.sluice.asking import operated, site_of, sluice, steps, tier_line
from tests.integration.sluice.given import Feed, assert_windows, ends, equation, feeding, table
from tests.integration.sluice.runs import PIPELINE_MODULE
from tests.lab import ROOT, Lab, until

__all__ = ["PIPELINE_MODULE"]
TIER, RATE = "by-window", 100
MARK = 10**12
"""What the new code adds to each sum that it writes."""
SHIPPED = 'counted.select("who", F.col("window.start").alias("since"), "hits", "ids")'
MARKED = SHIPPED.replace('"ids"', f'(F.col("ids") + {MARK}).alias("ids")')
WHO = 'F.when(F.col("who") == "{who}", {what}).otherwise(F.col("who")).alias("who")'
THROWS = 'F.raise_error(F.lit("cannot take this one"))'
SLEPT = 'F.java_method(F.lit("java.lang.Thread"), F.lit("sleep"), F.lit(30000).cast("bigint"))'
SLEEPS = f'F.concat("who", F.substring({SLEPT}, 1, 0))'
"""Changes nobody's name: a row of another key would stay in the table."""
SUM = 'F.sum("id").alias("ids")'
pytestmark = [pytest.mark.timeout(1800), pytest.mark.long]


@pytest.fixture(scope="module")
def site() -> str:
    return site_of(f"{TIER}: {{minimum: 1, target: 1, maximum: 2}}")


@pytest.fixture(scope="module")
def running(lab: Lab, feed: Feed) -> Iterator[Lab]:
    with operated(lab):
        feed.hits(500)
        sluice(lab, "start", TIER)
        until("it counts", lambda: ends(lab, TIER))
        yield lab


@pytest.fixture
def publish(lab: Lab, tmp_path: Path) -> Callable[..., str]:
    """Publish the pipeline with some words changed, and return the release."""

    def changed(**words: str) -> str:
        at = tmp_path / Path(holding.__file__).relative_to(ROOT)
        at.parent.mkdir(parents=True, exist_ok=True)
        code = Path(holding.__file__).read_text()
        for before, after in ((SHIPPED, words.get("result", SHIPPED)), (SUM, words.get("sums", SUM))):
            assert code.count(before) == 1, before
            code = code.replace(before, after)
        at.write_text(code)
        for folder in list(at.relative_to(tmp_path).parents)[:-1]:
            (tmp_path / folder / "__init__.py").touch()
        asked = [sys.executable, "-m", "sluice.commands.publish"]
        done = subprocess.run(asked, env=lab.env, cwd=tmp_path, capture_output=True, text=True, check=False)
        found = re.search(r"release (r\d+-[0-9a-f]+) is new", done.stdout)
        assert found is not None, done.stdout + done.stderr
        return found[1]

    return changed


def owner(lab: Lab) -> int | None:
    found = lab.channel.read(paths.owner(TIER), OwnerRecord)
    return None if found is None else found.value.owner


def test_code_that_goes_on_with_the_state_is_taken_on(
    running: Lab, feed: Feed, publish: Callable[..., str]
) -> None:
    with feeding(feed, RATE):
        good = publish(result=MARKED)
        asked = sluice(running, "upgrade", TIER)
    assert asked["ok"], asked
    assert "did well" in steps(asked)["trial"]["sentence"]
    assert tier_line(running, TIER)["release"] == good
    assert_windows(running, feed, MARK)
    assert any(ids >= MARK for _, ids in table(running, "windows", 2).values()), "the new code writes"


@pytest.mark.parametrize(
    ("who", "what", "why"),
    [
        pytest.param("user-5", THROWS, "cannot take this one", id="it fails on a record"),
        pytest.param(
            "user-6",
            SLEEPS,
            r"none of \d+ waiting records was processed|in that time; \d+ wait",
            id="it is too slow",
        ),
        pytest.param("user-6", None, "no output from", id="it writes nothing"),
    ],
)
def test_code_that_does_not_do_well_is_left_again(
    running: Lab, feed: Feed, publish: Callable[..., str], who: str, what: str | None, why: str
) -> None:
    line = tier_line(running, TIER)
    with feeding(feed, RATE):
        result = (
            f"{MARKED}.where('hits < 0')"
            if what is None
            else MARKED.replace('"who"', WHO.format(who=who, what=what), 1)
        )
        bad = publish(result=result)
        with ThreadPoolExecutor() as pool:
            asked = pool.submit(sluice, running, "upgrade", TIER)
            until("the new code owns the tier", lambda: asked.done() or owner(running) != line["incarnation"])
            feed.people = int(who.removeprefix("user-")) + 1
            told = asked.result()
    said = steps(told)["trial"]["sentence"]
    assert f"does not do well on release {bad}" in said
    assert re.search(why, said), said
    assert f"it rolls back to {line['release']} by itself" in said
    assert steps(told)["abort"]["ok"], told
    after = tier_line(running, TIER)
    assert after["release"] == line["release"]
    assert after["incarnation"] >= line["incarnation"] + 2, "one was tried, and one came back"
    assert_windows(running, feed, MARK)


def test_code_with_other_state_is_refused_and_can_begin_anew_by_hand(
    running: Lab, feed: Feed, publish: Callable[..., str]
) -> None:
    line, other = tier_line(running, TIER), publish(sums='F.max("id").alias("ids")')
    with feeding(feed, RATE):
        refused = sluice(running, "upgrade", TIER)
    said = steps(refused)["preflight"]["sentence"]
    assert (
        f'tier "{TIER}" cannot be handed over from {line["release"]} to {other}: '
        "the state of the new code holds Aggregate of who, window(" in said
    )
    assert "count(1), max(id), and the checkpoint holds Aggregate of who, window(" in said
    assert f"`sluice stop {TIER}`, `sluice upgrade {TIER}`, `sluice start {TIER}`" in said
    assert steps(refused).keys() == {"preflight"}
    assert owner(running) == line["incarnation"]
    assert_windows(running, feed, MARK)

    # as it says: the state is made again from the first record on
    sluice(running, "stop", TIER)
    until("it is stopped", lambda: tier_line(running, TIER)["state"] == "stopped")
    assert sluice(running, "upgrade", TIER)["ok"]
    sluice(running, "start", TIER)
    feed.hits(200)
    until("every row is of that code", lambda: table(running, "windows", 2) == largest(feed))
    # what comes last may be a replay, or late, and no row tells of it
    until("the ledger has all", lambda: equation(running, TIER) == feed.equation("hits"))


def largest(feed: Feed) -> dict[tuple[str, datetime], tuple[int, int]]:
    """Return how many hits each window has, and the largest of their ids."""
    found: dict[tuple[str, datetime], list[int]] = defaultdict(list)
    for hit in feed.records["hits"]:
        found[hit["who"], datetime.fromtimestamp(hit["at"] // 10_000 * 10, UTC)].append(hit["id"])
    return {key: (len(ids), max(ids)) for key, ids in found.items()}
