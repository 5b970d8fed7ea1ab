"""What a driver measures beside its query: where Kafka does not answer, it says so, for its query waits without a word."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from sluice.driver.counters import Flow
from sluice.driver.process import progress_report
from sluice.driver.process.progress_report import Progress
from sluice.kafka.reader import Bounds, StreamError


@pytest.fixture
def measures(monkeypatch: pytest.MonkeyPatch) -> Progress:
    """Measure a tier with a sink that has done all there was."""

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

    monkeypatch.setattr(progress_report, "Streams", Kafka)
    monkeypatch.setattr(
        progress_report, "SlotCounts", lambda _session: SimpleNamespace(read=dict, running={})
    )
    monkeypatch.setattr(
        progress_report,
        "LagHistory",
        lambda _inputs: SimpleNamespace(look=lambda *_a, **_k: None, lags={}, pressure=None),
    )
    tier = SimpleNamespace(name="counts", inputs=(), sink=object(), mode="batch", hangs_after=None)
    setting = SimpleNamespace(
        tier=tier, incarnation=1, inputs=["hits"], flow=Flow(), session=None, kafka="kafka"
    )
    engine = SimpleNamespace(positions=lambda: {"hits/0": 20}, last_batch=lambda: None, offset_sum=lambda: None)
    return Progress(cast("Any", setting), cast("Any", engine), dict)


def test_it_says_for_how_long_kafka_does_not_answer(measures: Progress) -> None:
    kafka, flow = cast("Any", measures._streams), measures._flow
    measures._look({})
    assert flow.waits_for is None
    kafka.error = StreamError("Kafka at b1:9092 does not answer: Local: Timed out")
    with pytest.raises(StreamError):
        measures._look({})
    assert flow.waits_for == "Kafka at b1:9092 does not answer: Local: Timed out"
    kafka.error = None
    measures._look({})
    assert flow.waits_for is None


def test_any_other_error_is_nothing_that_the_tier_waits_for(measures: Progress) -> None:
    cast("Any", measures._streams).error = RuntimeError("a defect")
    with pytest.raises(RuntimeError):
        measures._look({})
    assert measures._flow.waits_for is None
