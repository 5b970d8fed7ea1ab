"""The code of the page about Spark's limits runs, and returns what the page says."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import functions as F  # noqa: N812 - the usual alias in Spark code

import sluice
from sluice import Fields, Kind, Latest, Pipeline, State, Stream, Tier
from sluice.testing import run_batches
from tests.lab import ROOT
from tests.testing_session import end_session

HITS = Stream("hits", "id string, user string, at bigint", Fields("id"))
BUYS = Stream("buys", "hit string, cents bigint, at bigint", Fields("hit"))
MINUTE = 60_000

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module", autouse=True)
def ended_session() -> Iterator[None]:
    """End the session and its JVM, so that other tests of this process may start their own."""
    yield
    end_session()


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    """Return the names that the page's code defines."""
    names = {name: getattr(sluice, name) for name in sluice.__all__}
    names |= {"F": F, "HITS": HITS, "BUYS": BUYS}
    for block in re.findall(
        r"```python\n(.*?)```", (ROOT / "docs/limits-of-spark.md").read_text(), re.DOTALL
    ):
        exec(block, names)  # noqa: S102 - the page's own code
    return names


def test_the_first_three_of_each_window_are_found(page: dict[str, Any]) -> None:
    columns = {"since": "timestamptz", "place": "integer", "user": "text", "hits": "bigint"}
    best = Tier(
        "best",
        Kind.PROCESSING,
        (HITS,),
        page["top_three"],
        sink=Latest("best", columns, key=("since", "place")),
        state=State(60, time="at"),
    )
    users = ["anna"] * 4 + ["ben"] * 2 + ["carl"] * 3 + ["dora"]
    hits = [{"id": str(number), "user": user, "at": MINUTE} for number, user in enumerate(users)]
    later = [{"id": "x", "user": "anna", "at": 60 * MINUTE}]
    rows = [row for batch in run_batches(best, hits, later, []) for row in batch]
    assert [(row["place"], row["user"], row["hits"]) for row in rows] == [
        (0, "anna", 4),
        (1, "carl", 3),
        (2, "ben", 2),
    ]


def test_rows_of_a_join_are_aggregated_in_the_next_tier(page: dict[str, Any]) -> None:
    hits = [{"id": str(number), "user": "anna", "at": MINUTE} for number in range(2)]
    buys = [{"hit": str(number), "cents": 100 + number, "at": 2 * MINUTE} for number in range(2)]
    pairs = [row for batch in run_batches(page["JOIN"], {"hits": hits, "buys": buys}, {}) for row in batch]
    assert sorted((row["id"], row["user"], row["cents"]) for row in pairs) == [
        ("0", "anna", 100),
        ("1", "anna", 101),
    ]
    spent = [row for batch in run_batches(page["SUM"], pairs) for row in batch]
    assert [(row["user"], row["cents"]) for row in spent] == [("anna", 201)]


def test_the_tiers_of_the_page_are_a_pipeline(page: dict[str, Any]) -> None:
    entries = [
        Tier(f"entry-{stream.name}", Kind.ENTRY, (Stream(f"raw-{stream.name}"),), lambda raw: raw, (stream,))
        for stream in (HITS, BUYS)
    ]
    pipeline = Pipeline((*entries, page["JOIN"], page["SUM"]))
    assert pipeline.spec("join").distance == 1
