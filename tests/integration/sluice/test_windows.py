"""Windows that overlap, and windows of windows, on real Kafka and PostgreSQL: stopped anywhere,
their output is the one computed from the input.
"""

import itertools
import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from sluice.sinks.outbox import Outbox
from tests.integration.sluice.state_feed import Feed, busiest, equation, records, table, windows
from tests.integration.sluice.stateful_runs import PIPELINE_MODULE, Runs
from tests.integration.sluice.test_state import begin
from tests.lab import Lab, until

__all__ = ["PIPELINE_MODULE", "begin"]

pytestmark = pytest.mark.timeout(600)


def test_state_after_state_gets_each_row_once_whatever_dies(
    lab: Lab, begin: Callable[[str, int], Runs], feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first tier writes final rows into a stream, and the second one adds them up."""
    deaths = killed_now_and_then(monkeypatch)

    def give_later(seconds: float) -> None:
        """Let time go on in every partition, by records that are so much later than all hits."""
        first, at = 10**9 + 4 * len(feed.records["hits"]), hits[-1]["at"] + round(seconds * 1000)
        feed.put("hits", [{"id": first + number, "who": "later", "at": at} for number in range(4)])

    first, second = begin("busiest", 1), begin("minutes", 1)
    feed.hits(6000)
    hits, engine, reader = list(feed.records["hits"]), first.start(1), second.start(1)
    for number in range(2, 8):
        time.sleep(2)
        give_later(100 * number)
        engine.check()
        if number % 2:
            engine.hold()
            reader.hold()
            for runs in (first, second):
                runs.set_owner(number)
            engine, reader = first.start(number), second.start(number)

    def all_came() -> bool:
        for each in (engine, reader):
            each.check()
            each.tick()
        give_later(1000 + len(feed.records["hits"]) / 10)
        rows = table(lab, "busiest", 1)
        are_all_final = all(rows.get(key) == row for key, row in busiest(hits).items())
        return are_all_final and by_minutes(rows) == table(lab, "minutes", 1)

    until("both tables have the results", all_came, 120)
    sent = [json.loads(message.value())["since"] for message in records(lab, "busy")]
    assert len(sent) == len(set(sent))
    assert len(deaths) > 2
    for each in (engine, reader):
        each.hold()


def killed_now_and_then(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let an owner die at every third batch, before Kafka's commit or after it; return the list of
    deaths.
    """
    calls, deaths, hand_over = itertools.count(), list[str](), Outbox._hand_over

    def die(when: str) -> None:
        deaths.append(when)
        raise RuntimeError(when)

    def hand_over_or_die(*given: Any) -> None:
        call = next(calls)
        if call % 6 == 2:
            die("before Kafka's commit")
        hand_over(*given)
        if call % 6 == 5:
            die("after Kafka's commit")

    monkeypatch.setattr(Outbox, "_hand_over", hand_over_or_die)
    return deaths


def by_minutes(rows: dict[tuple[Any, ...], tuple[Any, ...]]) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """Return the number of rows of `busiest`, and the sum of their ids, by minute."""
    found: dict[tuple[Any, ...], tuple[int, int]] = {}
    for (since,), (_, ids) in rows.items():
        count, total = found.get((since.replace(second=0),), (0, 0))
        found[since.replace(second=0),] = (count + 1, total + ids)
    return dict(found)


def test_overlapping_and_chained_windows_survive_stops(
    lab: Lab, begin: Callable[[str, int], Runs], feed: Feed
) -> None:
    tiers = {name: begin(name, 1) for name in ("sliding", "busiest")}
    engines = {name: runs.start(1) for name, runs in tiers.items()}
    for number in range(2, 4):
        feed.hits(1000)
        time.sleep(number / 2)
        for name, runs in tiers.items():
            query = engines[name]._query
            assert query is not None
            query.stop()
            runs.set_owner(number)
            engines[name] = runs.start(number)
    hits = list(feed.records["hits"])
    for name, runs in tiers.items():
        runs.wait_level(engines[name])
        assert equation(lab, name) == feed.equation("hits")
    assert table(lab, "sliding", 2) == windows(hits, every=5)

    def all_are_final() -> bool:
        """Time goes on with each later record, in every partition."""
        later = len(feed.records["hits"]) - len(hits)
        rows = [
            {"id": 10**9 + later + number, "who": "later", "at": hits[-1]["at"] + 600_000 + later * 100}
            for number in range(4)
        ]
        feed.put("hits", rows)
        return bool(table(lab, "busiest", 1) == busiest(hits))

    until("the windows of all hits are final", all_are_final, 60)
    for engine in engines.values():
        engine.hold()
