"""Events for complete hours: none twice, none left out, and none before every tier is complete up
to the hour's end.
"""

import asyncio
from collections import defaultdict
from datetime import UTC, datetime
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from sluice_airflow.assets import hour_complete, table
from sluice_airflow.hooks.sluice import SluiceHook
from sluice_airflow.operators.hours import (
    HOUR,
    CompleteTrigger,
    HourOperator,
    announced_until,
    beginning,
    least_complete,
)
from sluice_ops.queries.figures import Audited, Figures

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def audited(tier, complete):
    return Audited(tier=tier, once=1, again=0, judges=True, at=0.0, complete=complete)


def test_the_tier_least_complete_decides():
    assert least_complete(Figures(audit=(audited("a", 20.0), audited("b", 10.0), audited("c", 30.0)))) == (
        "b",
        10.0,
    )


def test_a_tier_without_a_known_time_holds_the_event_back():
    assert least_complete(Figures(audit=(audited("a", 20.0), audited("b", None)))) == ("b", None)
    assert least_complete(Figures())[1] is None


def test_an_unknown_completeness_is_reported_with_the_next_step(monkeypatch):
    figures = Figures(audit=(audited("a", 20.0), audited("b", None)))
    monkeypatch.setattr(SluiceHook, "figures", lambda _hook: figures)

    async def first():
        return [event async for event in CompleteTrigger(until=10.0, late=0.0).run()]

    (event,) = asyncio.run(first())
    assert event.payload["why"].startswith("the audit does not know yet up to when b is complete")
    assert "pause this DAG" in event.payload["why"]


def test_the_first_event_covers_only_the_last_hour():
    assert beginning(NOON, None) == NOON - HOUR


def test_an_announced_hour_is_not_announced_again():
    assert beginning(NOON, NOON) == NOON
    assert beginning(NOON, NOON + 3 * HOUR) > NOON


@given(st.lists(st.integers(1, 30), min_size=1, max_size=20))
def test_each_event_begins_where_the_last_one_ended(steps):
    announced = NOON
    for step in steps:
        until = announced + step * HOUR
        assert beginning(until, announced) == announced
        announced = until


def test_unusable_extras_of_an_event_count_as_not_announced():
    assert [announced_until(extra) for extra in (None, {}, {"until": "noon"}, {"until": 12})] == [None] * 4
    assert (
        announced_until({"until": "2026-03-01T12:00:00"})
        == announced_until({"until": NOON.isoformat()})
        == NOON
    )


def test_each_table_gets_the_event_of_the_complete_hours(monkeypatch):
    passed = NOON.timestamp() + 60
    by_event_time = audited("b", passed).model_copy(update={"events": passed - 600})
    monkeypatch.setattr(
        SluiceHook, "figures", lambda _hook: Figures(audit=(audited("a", passed), by_event_time))
    )
    before = SimpleNamespace(extra={"until": (NOON - 3 * HOUR).isoformat()})
    past = SimpleNamespace(ascending=lambda _oldest_first: SimpleNamespace(limit=lambda _most: [before]))
    events = defaultdict(SimpleNamespace)
    tell = HourOperator(task_id="tell", outlets={table("delivered"): "a", table("sums"): "b"})
    tell.execute(
        {
            "dag_run": SimpleNamespace(run_after=NOON + HOUR / 10),
            "inlet_events": {hour_complete(): past},
            "outlet_events": events,
        }
    )
    hours = {"from": (NOON - 3 * HOUR).isoformat(), "until": NOON.isoformat()}
    assert {asset.name: event.extra for asset, event in events.items()} == {
        "hour_complete": hours,
        "table_delivered": hours,
        "table_sums": hours | {"events_until": (NOON - HOUR / 6).isoformat()},
    }
