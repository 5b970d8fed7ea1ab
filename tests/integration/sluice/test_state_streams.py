"""A tier with state reads the stream of another one, on real Kafka and PostgreSQL."""

import itertools
import json
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from sluice.driver.engine.stateful import StatefulEngine
from sluice.sinks.outbox import Outbox
from tests.integration.sluice.state_feed import Feed, busiest, by_minutes, records, table
from tests.integration.sluice.stateful_runs import PIPELINE_MODULE, Runs
from tests.integration.sluice.test_state import begin
from tests.lab import Lab, until

__all__ = ["PIPELINE_MODULE", "begin"]

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]
DIES_BEFORE, DIES_AFTER = {0, 3}, {1, 5}
"""The batches at which the owner dies: before Kafka commits the records, or just afterwards."""
SECONDS = 600
"""The event time of all hits."""
STEPS = 12
"""Time goes on by a minute in each step; the owners change in every third one."""


@pytest.fixture
def deaths(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let the owner die now and then while it sends records; return the list of deaths."""
    calls, found, hand_over = itertools.count(), list[str](), Outbox._hand_over

    def die(when: str) -> None:
        found.append(when)
        raise RuntimeError(when)

    def hand_over_or_die(*given: Any) -> None:
        call = next(calls)
        if call in DIES_BEFORE:
            die("before Kafka's commit")
        hand_over(*given)
        if call in DIES_AFTER:
            die("after Kafka's commit")

    monkeypatch.setattr(Outbox, "_hand_over", hand_over_or_die)
    return found


def test_each_final_row_reaches_the_next_tier_once(
    lab: Lab, begin: Callable[[str, int], Runs], feed: Feed, deaths: list[str]
) -> None:
    """The first tier writes final rows into a stream, and the second one adds them up."""
    hits = [
        {"id": number, "who": f"user-{number % 5}", "at": feed.first_time + number * 250}
        for number in range(SECONDS * 4)
    ]

    def give_later(seconds: float) -> None:
        """Let time go on in every partition, by records that are so much later than all hits."""
        first, at = 10**9 + 4 * len(feed.records["hits"]), hits[-1]["at"] + round(seconds * 1000)
        feed.put("hits", [{"id": first + number, "who": "later", "at": at} for number in range(4)])

    first, second = begin("busiest", 1), begin("minutes", 1)
    feed.put("hits", hits)
    hits = list(feed.records["hits"])
    engine, reader = first.start(1), second.start(1)
    number = 1
    while number < STEPS or len(deaths) < len(DIES_BEFORE | DIES_AFTER):
        number += 1
        time.sleep(2)
        give_later(60 * number)
        for each in (engine, reader):
            go_on(each)
        if number % 3 == 0:
            for each in (engine, reader):
                each.hold()
            for runs in (first, second):
                runs.set_owner(number)
            engine, reader = first.start(number), second.start(number)

    def all_came() -> bool:
        for each in (engine, reader):
            go_on(each)
        give_later(1000 + len(feed.records["hits"]) / 10)
        rows = table(lab, "busiest", 1)
        are_all_final = all(rows.get(key) == row for key, row in busiest(hits).items())
        return are_all_final and by_minutes(rows) == table(lab, "minutes", 1)

    until("both tables have the results", all_came, 240)
    sent = [json.loads(message.value())["since"] for message in records(lab, "busy")]
    assert len(sent) == len(set(sent))
    for each in (engine, reader):
        each.hold()


def go_on(engine: StatefulEngine) -> None:
    """Do what a driver does in each turn; if it dies there, the next turn is another driver's."""
    engine.check()
    with suppress(RuntimeError):
        engine.tick()
