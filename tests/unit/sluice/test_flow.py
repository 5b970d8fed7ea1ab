"""Counters of the records that passed an incarnation agree with a plain count."""

from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.streaming.listener import StreamingQueryProgress

from sluice.driver.counters import BOUNDS, Waits, raised
from sluice.driver.process.progress_report import Growth, state_sizes
from sluice.kafka.positions import OutputRecord
from sluice.kafka.reader import Seen

seconds = st.lists(st.one_of(st.sampled_from(BOUNDS), st.floats(-5, 1000)))


@given(st.lists(seconds))
def test_a_histogram_filled_in_batches_equals_the_one_of_all_values(batches: list[list[float]]) -> None:
    waits = Waits()
    for batch in batches:
        waits = waits.plus(batch)
    all_waits = [wait for batch in batches for wait in batch]
    assert waits.counts == (*(sum(wait <= bound for wait in all_waits) for bound in BOUNDS), len(all_waits))
    assert abs(waits.seconds - sum(all_waits)) < 1e-6 * (1 + sum(map(abs, all_waits)))


def test_counts_grow_and_keep_absent_streams() -> None:
    assert raised({"hits": 3}, {"hits": 2, "more": 0}) == {"hits": 5, "more": 0}
    assert raised({"hits": 3}, {}) == {"hits": 3}


def record_at(offset: int) -> Seen:
    return Seen(OutputRecord("entry/1", "raw/0", 1, 0), 0, f"hits/0:{offset}")


def test_growth_is_counted_by_stream_from_the_first_look_on() -> None:
    growth = Growth()
    assert not growth.is_new(record_at(5)), "records from before the first look are no growth"
    assert growth.to({"hits/0": 5, "hits/1": 7, "bad/0": 1}) == {"hits": 0, "bad": 0}
    assert not growth.is_new(record_at(4))
    assert growth.is_new(record_at(5))
    assert growth.to({"hits/0": 8, "hits/1": 9, "hits/2": 100, "bad/0": 1}) == {"hits": 5, "bad": 0}
    assert growth.to({"hits/0": 2, "hits/1": 10}) == {"hits": 1}, (
        "a recreated stream must not reduce the growth"
    )


def operator(name: str, rows: int, memory: int) -> dict[str, object]:
    counts = dict.fromkeys(
        ("numRowsUpdated", "allUpdatesTimeMs", "numRowsRemoved", "allRemovalsTimeMs", "commitTimeMs"), 0
    )
    more = {
        "numRowsDroppedByWatermark": 0,
        "numShufflePartitions": 2,
        "numStateStoreInstances": 2,
        "customMetrics": {},
    }
    return {"operatorName": name, "numRowsTotal": rows, "memoryUsedBytes": memory, **counts, **more}


def test_state_sizes_are_summed_by_operator() -> None:
    run = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
    source = {"description": "", "startOffset": "", "endOffset": "", "latestOffset": "", "numInputRows": 1}
    rates = {"inputRowsPerSecond": 1.0, "processedRowsPerSecond": 1.0}
    progress = {
        "id": run,
        "runId": run,
        "name": "x",
        "timestamp": "2026-01-01T00:00:00.000Z",
        "batchId": 1,
        "batchDuration": 1,
        "durationMs": {},
        "eventTime": {},
        "numInputRows": 1,
        "observedMetrics": {},
        "sources": [source | rates],
        "stateOperators": [operator("join", 3, 100), operator("join", 4, 50), operator("dedupe", 1, 8)],
        "sink": {"description": "", "numOutputRows": 1},
    }
    assert state_sizes(StreamingQueryProgress.fromJson(progress | rates)) == {
        "join": (7, 150),
        "dedupe": (1, 8),
    }
    assert state_sizes(StreamingQueryProgress.fromJson(progress | rates | {"stateOperators": []})) == {}
