"""The code of the page about Spark's limits runs, and returns what the page says."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import functions as F  # noqa: N812 - the usual alias in Spark code

import sluice
from sluice import Fields, Kind, Latest, State, Stream, Tier
from sluice.testing import run_batches
from tests.lab import ROOT
from tests.testing_session import end_session

HITS = Stream("hits", "id string, user string, at bigint", Fields("id"))
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
    names |= {"F": F}
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
