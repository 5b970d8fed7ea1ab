"""A state with a time to live is forgotten after its rest, and only then, though its tier is handed
over and killed meanwhile.
"""

import json
import time
from contextlib import closing

import pytest

from sluice.kafka.reader import Streams
from sluice_ops.model.incarnation import State
from tests.integration.sluice.state_feed import Feed, ends, equation, records, sums, table
from tests.integration.sluice.stateful_pipeline import REST_SECONDS
from tests.lab import Lab, until
from tests.repeating import repeated

PIPELINE_MODULE = "tests.integration.sluice.stateful_pipeline"
TIER = "since-rest"
BUSY = "user-of-each-second"

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]


def test_a_key_that_rests_begins_anew_and_a_busy_one_goes_on(lab: Lab) -> None:
    feed = Feed(lab)

    def busy_hit() -> None:
        at = feed.first_time + feed.number * 10
        feed.put("hits", [{"id": feed.number, "who": BUSY, "at": at}])
        feed.number += 1

    def wait_level() -> None:
        with closing(Streams(lab.endpoints.kafka)) as streams:
            input_ends = streams.bounds(["hits"]).ends
        until("every hit is counted", lambda: ends(lab, TIER) == input_ends)

    lab.start_owner(TIER, 1, "h1")
    feed.hits(200)
    busy_hit()
    wait_level()
    before = {who: rows for who, rows in table(lab, "since_rest", 1).items() if who != (BUSY,)}
    assert before == {who: rows for who, rows in sums(feed.records["hits"]).items() if who != (BUSY,)}
    rested, forgotten = time.monotonic(), len(feed.records["hits"])
    with repeated(busy_hit, every=1.0):
        lab.prepare(TIER, 1, 2, "h2")
        lab.hand_over(TIER, 1, 2)
        lab.driver(TIER, 2).kill()
        lab.stop(TIER, 2)
        lab.start_owner(TIER, 3, "h3")
        lab.wait_for(TIER, 3, State.RUNNING)
        time.sleep(max(0.0, rested + 1.5 * REST_SECONDS - time.monotonic()))
    wait_level()
    feed.hits(200)
    busy_hit()
    wait_level()
    hits = feed.records["hits"]
    counted = [hit for hit in hits[:forgotten] if hit["who"] == BUSY] + hits[forgotten:]
    assert table(lab, "since_rest", 1) == sums(counted)
    assert equation(lab, TIER) == feed.equation("hits")

    def changes() -> list[tuple[str, int, int]]:
        rows = [json.loads(message.value()) for message in records(lab, "sum-changes")]
        return [(row["who"], row["hits"], row["ids"]) for row in rows]

    expected = table(lab, "since_rest", 1)
    until(
        "the stream has the last rows",
        lambda: {(*who, *row) for who, row in expected.items()} <= set(changes()),
    )
    assert len(changes()) == len(set(changes())), "each change is in the stream once"
    assert {row for row in changes() if (row[0],) in before and row[1:] == before[row[0],]} == {
        (*who, *row) for who, row in before.items()
    }, "the rows before the rest are there, too"
