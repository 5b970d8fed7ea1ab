"""New code of a tier with state, while records flow, with a real controller and agents: upgraded,
refused, or rolled back.
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
from tests.integration.sluice import stateful_pipeline
from tests.integration.sluice.operated_lab import operated, site_of, sluice, steps, tier_line
from tests.integration.sluice.state_feed import Feed, assert_windows, ends, equation, feeding, table
from tests.integration.sluice.stateful_runs import PIPELINE_MODULE
from tests.lab import ROOT, Lab, until

__all__ = ["PIPELINE_MODULE"]
TIER, RATE = "by-window", 100
MARK = 10**12
"""The new code adds this number to each sum that it writes."""
SHIPPED = 'counted.select("who", F.col("window.start").alias("since"), "hits", "ids")'
MARKED = SHIPPED.replace('"ids"', f'(F.col("ids") + {MARK}).alias("ids")')
WHO = 'F.when(F.col("who") == "{who}", {what}).otherwise(F.col("who")).alias("who")'
FAILING_NAME = 'F.raise_error(F.lit("cannot take this one"))'
SLEPT = 'F.java_method(F.lit("java.lang.Thread"), F.lit("sleep"), F.lit(30000).cast("bigint"))'
SLOW_NAME = f'F.concat("who", F.substring({SLEPT}, 1, 0))'
"""Does not change the name: with another key, the earlier row would stay in the table."""
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
        until("the tier counts", lambda: ends(lab, TIER))
        yield lab


@pytest.fixture
def publish(lab: Lab, tmp_path: Path) -> Callable[..., str]:
    """Publish the pipeline with edits; return the release."""

    def publish_edited(**edits: str) -> str:
        module_file = tmp_path / Path(stateful_pipeline.__file__).relative_to(ROOT)
        module_file.parent.mkdir(parents=True, exist_ok=True)
        code = Path(stateful_pipeline.__file__).read_text()
        for before, after in ((SHIPPED, edits.get("result", SHIPPED)), (SUM, edits.get("sums", SUM))):
            assert code.count(before) == 1, before
            code = code.replace(before, after)
        module_file.write_text(code)
        for folder in list(module_file.relative_to(tmp_path).parents)[:-1]:
            (tmp_path / folder / "__init__.py").touch()
        command = [sys.executable, "-m", "sluice.commands.publish"]
        done = subprocess.run(command, env=lab.env, cwd=tmp_path, capture_output=True, text=True, check=False)
        match = re.search(r"release (r\d+-[0-9a-f]+) is new", done.stdout)
        assert match is not None, done.stdout + done.stderr
        return match[1]

    return publish_edited


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
    line, other = tier_line(running, TIER), publish(sums='F.max("id").alias("ids")')
    with feeding(feed, RATE):
        refused = sluice(running, "upgrade", TIER)
    sentence = steps(refused)["preflight"]["sentence"]
    assert (
        f'tier "{TIER}" cannot be handed over from {line["release"]} to {other}: '
        "the state of the new code holds Aggregate of who, window(" in sentence
    )
    assert "count(1), max(id), and the checkpoint holds Aggregate of who, window(" in sentence
    assert f"`sluice stop {TIER}`, `sluice upgrade {TIER}`, `sluice start {TIER}`" in sentence
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
