"""The measurements beside a driver's query report an unreachable Kafka, because the query itself
waits silently.
"""

import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sluice.driver.counters import Flow
from sluice.driver.process import progress_report
from sluice.driver.process.progress_report import Progress
from sluice.kafka.reader import Bounds, StreamError


@pytest.fixture
def progress(monkeypatch: pytest.MonkeyPatch) -> Progress:
    """The measurements of a tier with a sink that has processed all records."""

    class Kafka:
        error: Exception | None = None

        def __init__(self, _kafka: str) -> None:
            pass

        def renew(self) -> None:
            pass

        def bounds(self, _topics: object) -> Bounds:
            if self.error is not None:
                raise self.error
            return Bounds({"hits/0": 0}, {"hits/0": 20})

        def times_at(self, _places: object) -> dict[str, int]:
            return {}

    monkeypatch.setattr(progress_report, "Streams", Kafka)
    monkeypatch.setattr(
        progress_report, "SlotCounts", lambda _session: SimpleNamespace(read=dict, running={})
    )
    monkeypatch.setattr(
        progress_report,
        "LagHistory",
        lambda _inputs: SimpleNamespace(
            update=lambda *_a, **_k: None, lags={}, pressure=None, rate_taken=None
        ),
    )
    tier = SimpleNamespace(name="counts", inputs=(), sink=object(), mode="batch", hangs_after=None)
    config = SimpleNamespace(
        tier=tier,
        incarnation=1,
        inputs=["hits"],
        flow=Flow(),
        session=None,
        kafka="kafka",
        workers=SimpleNamespace(working=frozenset),
    )
    engine = SimpleNamespace(
        positions=lambda: {"hits/0": 20}, last_batch=lambda: None, offset_sum=lambda: None
    )
    return Progress(cast("Any", config), cast("Any", engine), dict, lambda _load: None)


def test_an_unreachable_kafka_is_reported_until_it_answers(progress: Progress) -> None:
    kafka, flow = cast("Any", progress._streams), progress._flow
    progress._look({})
    assert flow.waits_for is None
    kafka.error = StreamError("Kafka at b1:9092 does not answer: Local: Timed out")
    with pytest.raises(StreamError):
        progress._look({})
    assert flow.waits_for == "Kafka at b1:9092 does not answer: Local: Timed out"
    kafka.error = None
    progress._look({})
    assert flow.waits_for is None


def test_a_batch_counts_as_busy_while_it_runs(progress: Progress) -> None:
    flow = progress._flow
    flow.busy_seconds = 5.0
    assert progress._busy_seconds() == 5.0
    flow.batch_began = time.monotonic() - 30.0
    assert progress._busy_seconds() == pytest.approx(35.0, abs=1.0)
    flow.away = "PostgreSQL does not answer"
    assert progress._busy_seconds() == 5.0, "more workers would not help"


def test_other_errors_are_not_reported_as_a_wait(progress: Progress) -> None:
    cast("Any", progress._streams).error = RuntimeError("a defect")
    with pytest.raises(RuntimeError):
        progress._look({})
    assert progress._flow.waits_for is None


def test_rates_are_told_for_each_input_and_output(progress: Progress) -> None:
    flow = progress._flow
    flow.records_in, flow.records_out = {"hits": 100, "ads": 5}, {"enriched": 50}
    assert progress._rates(10.0) == ({"hits": 0.0, "ads": 0.0}, {"enriched": 0.0})
    flow.records_in, flow.records_out = {"hits": 120, "ads": 5}, {"enriched": 56, "raw.quarantine": 3}
    rates = ({"hits": 10.0, "ads": 0.0}, {"enriched": 3.0, "raw.quarantine": 1.5})
    assert progress._rates(12.0) == rates


def test_a_metered_tier_tells_the_meter_of_its_load(progress: Progress) -> None:
    metered: list[bool] = []
    progress._load = cast("Any", SimpleNamespace(measure=lambda sums, **_: metered.append(sums.metered)))
    progress._look({})
    progress._flow.metered = True
    progress._look({})
    assert metered == [False, True]


def test_a_query_whose_thread_hangs_is_in_the_report(progress: Progress) -> None:
    progress._engine.positions = lambda: {"hits/0": 10}  # type: ignore[method-assign]
    progress._query_watchdog._told_after = 0.0
    flow = progress._flow
    for _ in range(2):
        progress._look({})
    assert flow.hung is not None
    assert "no batch has ended" in flow.hung.sentence
    progress._engine.positions = lambda: {"hits/0": 20}  # type: ignore[method-assign]
    progress._look({})
    assert flow.hung is None
