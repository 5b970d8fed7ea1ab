"""A window that ended before the time up to which a tier has all events gets no event more, while
the tier is handed over and killed.
"""

import itertools
import json
import random
import time
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka import Producer

from sluice.audit.__main__ import Auditor
from sluice_ops.model.incarnation import State
from tests.integration.sluice.state_feed import PARTITIONS, table, windows
from tests.integration.sluice.stateful_pipeline import LATENESS, PIPELINE
from tests.lab import Lab, until
from tests.repeating import repeated

PIPELINE_MODULE = "tests.integration.sluice.stateful_pipeline"
TIER = "by-window"
RATE, TICK_SECONDS = 100, 0.25
ENOUGH_WINDOWS = 20
"""So many rows have to be final at the last look."""
EVENTS_UP_TO = "select extract(epoch from complete)::float8 - lateness from frontier where tier = 'by-window'"

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]
Rows = dict[tuple[Any, ...], tuple[Any, ...]]


class LiveFeed:
    """Writes hits that happened up to a minute before they arrive, and some that come too late."""

    def __init__(self, lab: Lab) -> None:
        self._producer = Producer({"bootstrap.servers": lab.endpoints.kafka, "acks": "all"})
        self._numbers = itertools.count()
        self.taken: list[dict[str, Any]] = []
        self.late = 0

    def give(self, count: int) -> None:
        for number in itertools.islice(self._numbers, count):
            offset, partition = divmod(number, len(PARTITIONS))
            generator = random.Random(number)  # noqa: S311
            # a second in the future: Kafka stamps a record when it has it, and not before
            arrival = int(time.time() * 1000) + 1000
            waited = generator.choice([1_000, 5_000, LATENESS * 1000, (LATENESS + 30) * 1000])
            hit: dict[str, Any] = {
                "id": number,
                "who": f"user-{number % 5}",
                "at": arrival - generator.randrange(waited),
            }
            headers = {"origin": f"{partition}:{offset}", "path": str(partition), "t0": str(arrival)}
            self._producer.produce(
                "hits",
                json.dumps(hit),
                partition=partition,
                headers={name: word.encode() for name, word in headers.items()},
            )
            if arrival - hit["at"] > LATENESS * 1000:
                self.late += 1
            else:
                self.taken.append(hit)
        assert self._producer.flush(30) == 0


def before(rows: Rows, moment: float) -> Rows:
    """Return the rows of windows that ended before a moment."""
    return {
        (who, since): counted
        for (who, since), counted in rows.items()
        if (since + timedelta(seconds=10)).timestamp() <= moment
    }


def test_a_window_of_which_all_events_are_known_never_changes(lab: Lab) -> None:
    feed, looks, lost = LiveFeed(lab), list[tuple[float, Rows]](), list[object]()

    def look() -> None:
        lost.extend(auditor.check())
        for (moment,) in lab.query(EVENTS_UP_TO):
            looks.append((float(moment), before(table(lab, "windows", 2), float(moment))))

    with (
        closing(Auditor((PIPELINE.tier(TIER),), lab.endpoints)) as auditor,
        repeated(lambda: feed.give(int(RATE * TICK_SECONDS)), every=TICK_SECONDS),
        repeated(look, every=1.0),
    ):
        lab.start_owner(TIER, 1, "h1")
        until("the audit has a time", lambda: looks)
        lab.prepare(TIER, 1, 2, "h2")
        lab.hand_over(TIER, 1, 2)
        lab.driver(TIER, 2).kill()
        lab.stop(TIER, 2)
        lab.start_owner(TIER, 3, "h3")
        lab.wait_for(TIER, 3, State.RUNNING)
        now = time.time()
        until("the third driver goes on", lambda: looks[-1][0] > now - LATENESS)
    counted = sum(hit["id"] for hit in feed.taken)
    until("every hit is counted", lambda: lab.query("select sum(ids) from windows") == [(counted,)])
    final = table(lab, "windows", 2)
    assert final == windows(feed.taken)
    assert feed.late
    assert lost == []
    for moment, rows in looks:
        assert rows == before(final, moment)
    assert len(looks[-1][1]) > ENOUGH_WINDOWS
