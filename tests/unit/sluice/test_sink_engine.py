"""Faults of a tier with a sink, without Spark: for which the query waits, and which end it."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import accumulate
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pyarrow as pa
import pytest

from sluice.api.declarations import DeclarationError, Stream, Tier
from sluice.api.sink import SinkAwayError
from sluice.driver.engine import batch_engine, batch_writer, sink
from sluice.driver.engine.batch_cost import COLD_BATCHES
from sluice.driver.engine.batch_engine import RunStart
from sluice.driver.engine.batch_writer import HeldError, Stored
from sluice.driver.engine.settings import EngineConfig
from sluice.driver.engine.sink import SinkEngine
from sluice.driver.engine.sink_rows import NamesakesError, refuse_namesakes
from sluice.kafka.positions import RecordsGoneError
from sluice.kafka.reader import Bounds, NoStreamError, StreamError
from sluice.kafka.stream_identity import Watch
from sluice.kafka.truncation import ReadAgainError
from sluice.sinks.batches import Batch, LastBatch
from sluice.sinks.fence import FencedError
from sluice.sinks.ledger import Counts
from sluice.sinks.table import Totals
from sluice_ops.model.tier import Kind
from tests.unit.sluice.fake_control import FakeControl
from tests.unit.sluice.fake_identities import Answers

SUMS = Totals("sums", {"who": "text", "n": "bigint"}, key=("who",))
LAST = LastBatch(7, {"hits/0": 15}, 0.0, 0.0)


class FakeSinkEngine(SinkEngine):
    """A sink engine that records where its queries begin, and starts none in Spark."""

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config, FakeControl(), SUMS)
        self.begun: list[dict[str, int]] = []
        self.trouble: Exception | None = None
        self.last: LastBatch | None = LAST
        self.written: list[Batch] = []
        self._writer.ledger = cast(
            "Any", SimpleNamespace(last=self._look, number=7, marks=0, adopt_streams=lambda *_: None)
        )

    def _look(self) -> LastBatch | None:
        if self.trouble is not None:
            raise self.trouble
        return self.last

    def _start(self, _checkpoint: Any, begins: dict[str, int], *_more: Any, **_others: Any) -> Any:
        self.begun.append(begins)
        return SimpleNamespace(isActive=True)

    def put(self, batch: Batch) -> None:
        self._job.put(pa.table({}), batch, 0)

    def record_batch(self, _rows: object, batch: Batch, _before: float | None) -> Stored:
        """Store a batch instead of the sink."""
        self.written.append(batch)
        return stored()


def stored() -> Stored:
    return Stored(Counts(5, 5, 0, 0, 0, 0, 0, 5), time.time(), [], None)


def engine_config(tier: Tier, incarnation: int, streams: object) -> EngineConfig:
    return EngineConfig(
        session=cast("Any", None),
        tier=tier,
        incarnation=incarnation,
        streams=cast("Any", streams),
        kafka="kafka",
        postgres="postgres",
        home=cast("Any", None),
    )


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(batch_engine.time, "monotonic", lambda: now[0])
    return now


def query(oldest: int = 0, end: int = 20, stream: Stream | None = None) -> FakeSinkEngine:
    bounds = Bounds({"hits/0": oldest}, {"hits/0": end})
    streams = SimpleNamespace(
        renew=lambda: None, bounds=lambda _topics: bounds, places=lambda _topics: ["hits/0"]
    )
    tier = Tier(
        "counts", Kind.PROCESSING, (stream or Stream("hits", "who string"),), lambda hits: hits, sink=SUMS
    )
    return FakeSinkEngine(engine_config(tier, 3, streams))


def fail_query(engine: FakeSinkEngine) -> None:
    engine._query = cast(
        "Any", SimpleNamespace(isActive=False, exception=lambda: RuntimeError("the broker is gone"))
    )


@pytest.mark.parametrize(
    "trouble", [psycopg.OperationalError("no route to host"), StreamError("Kafka does not answer")]
)
def test_a_query_waits_for_a_service_without_a_limit(clock: list[float], trouble: Exception) -> None:
    engine = query()
    fail_query(engine)
    engine.trouble = trouble
    for _ in range(3600):
        clock[0] += 1
        engine.check()
    engine.trouble = None
    clock[0] += 2
    engine.check()
    assert engine.begun == [{"hits/0": 15}]
    assert engine._config.flow.restarts == 1


def test_a_missing_stream_ends_the_query(clock: list[float]) -> None:
    engine = query()
    fail_query(engine)
    engine.check()
    engine.trouble = NoStreamError()
    clock[0] += 2
    with pytest.raises(NoStreamError):
        engine.check()


def test_a_row_that_the_database_always_refuses_ends_the_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = query()

    def refuse(*_: object) -> None:
        message = "index row size 2800 exceeds maximum 2704"
        raise psycopg.errors.ProgramLimitExceeded(message)

    monkeypatch.setattr(engine._job, "write", refuse)
    monkeypatch.setattr(batch_writer, "AWAY_SECONDS", 0.01)
    with pytest.raises(psycopg.errors.ProgramLimitExceeded):
        engine.put(Batch({"hits/0": 15}, {"hits/0": 20}))


def test_retry_after_is_respected_and_a_hold_ends_the_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine, waits = query(), list[float]()
    errors = [SinkAwayError("crm takes no records: it answers 429", wait) for wait in (0.0, 60.0)]

    def refuse(*_: object) -> None:
        raise errors.pop(0)

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if not errors:
            engine._writer.held.set()

    monkeypatch.setattr(engine._job, "write", refuse)
    monkeypatch.setattr(
        engine._writer,
        "held",
        SimpleNamespace(wait=wait, set=(held := threading.Event()).set, is_set=held.is_set),
    )
    with pytest.raises(HeldError):
        engine.put(Batch({"hits/0": 15}, {"hits/0": 20}))
    assert waits == [batch_writer.AWAY_SECONDS, 60.0]
    assert engine._config.flow.away == "crm takes no records: it answers 429"


def test_expired_records_stop_the_tier_with_the_next_step() -> None:
    with pytest.raises(
        RecordsGoneError,
        match=r"hits/0: offsets 15 to 16 were never processed .* `sluice skip` lets the tier continue",
    ):
        query(17, 20).run()


def test_a_recreated_stream_stops_the_tier_with_the_next_step() -> None:
    with pytest.raises(RecordsGoneError, match="hits/0 ends at 9") as raised:
        query(0, 9).run()
    assert (
        "update ledger set ends = '{}' where tier = 'counts' and batch = 7; then run `sluice start counts`"
        in str(raised.value)
    )
    with pytest.raises(RecordsGoneError, match="empty sums and the tier's rows in marks: new records"):
        query(0, 9, Stream("hits")).run()


def test_a_recreated_stream_is_not_read_from_the_old_position() -> None:
    engine = query(0, 500)
    engine._writer.watch = Watch(Answers("second"))
    engine.last = replace(LAST, streams={"hits": "first"})
    with pytest.raises(
        RecordsGoneError, match=r"hits: the stream was deleted and recreated.*`sluice skip counts`"
    ):
        engine.run()
    engine.last = LastBatch(8, {}, 0.0, 0.0, {"hits": "first"})
    assert engine.run().positions == {"hits/0": 0}, (
        "an operator has let the tier continue with the oldest record"
    )


def test_an_unknown_stream_id_is_adopted_once() -> None:
    engine, adopted = query(0, 500), list[dict[str, str]]()
    engine._writer.watch = Watch(Answers("first"))
    engine._writer.ledger.adopt_streams = adopted.append  # type: ignore[method-assign]
    began = engine.run()
    assert (began.streams, began.epochs) == ({"hits": "first"}, {"hits/0": 3})
    assert adopted == [{"hits": "first"}]


def test_a_partition_cut_back_below_the_ledger_stops_the_tier() -> None:
    engine, ids = query(0, 500), Answers("first")
    engine._writer.watch = Watch(ids)
    engine.last = replace(LAST, streams={"hits": "first"}, epochs={"hits/0": 3})
    assert engine.run().positions == {"hits/0": 15}
    ids.epoch = 4
    assert engine.run().epochs == {"hits/0": 4}, "the new leader has all records that were read"
    ids.end = 14
    with pytest.raises(
        RecordsGoneError,
        match=r"hits/0 was cut back to offset 14, and was read up to 15: .*`sluice skip counts`",
    ):
        engine.run()
    engine.last = replace(LAST, ends={})
    assert engine.run().positions == {"hits/0": 0}, (
        "an operator has let the tier continue with the oldest record"
    )


def test_a_batch_read_during_a_leader_election_is_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine, ids = query(0, 500), Answers("first")
    engine._writer.watch = Watch(ids)
    engine.last = replace(LAST, streams={"hits": "first"}, epochs={"hits/0": 3})
    engine.run()
    monkeypatch.setattr(engine._job, "write", engine.record_batch)
    ids.epoch = 4
    with pytest.raises(ReadAgainError, match="hits/0"):
        engine.put(Batch({"hits/0": 15}, {"hits/0": 20}))
    assert engine.written == []
    engine._query, engine._error = cast("Any", SimpleNamespace(isActive=False)), ReadAgainError(["hits/0"])
    began = len(engine.begun)
    engine.check()
    assert len(engine.begun) == began + 1
    assert engine._config.flow.restarts == 0, "an election is no failure"
    engine.put(Batch({"hits/0": 15}, {"hits/0": 20}))
    assert [batch.epochs for batch in engine.written] == [{"hits/0": 4}]


def test_a_batch_is_not_written_after_its_stream_was_recreated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine, ids = query(0, 500), Answers("first")
    engine._writer.watch = Watch(ids)
    engine.last = replace(LAST, streams={"hits": "first"})
    engine.run()
    monkeypatch.setattr(engine._job, "write", engine.record_batch)
    engine.put(Batch({"hits/0": 15}, {"hits/0": 20}))
    ids.id = "second"
    with pytest.raises(RecordsGoneError, match="recreated"):
        engine.put(Batch({"hits/0": 15}, {"hits/0": 20}))
    assert len(engine.written) == 1


def test_a_tier_continues_with_the_oldest_record_after_a_skip() -> None:
    engine = query(17, 20)
    engine.last = LastBatch(7, {}, 0.0, 0.0)
    assert engine.run().positions == {"hits/0": 17}


def rows(*named: tuple[str, str]) -> pa.Table:
    partitions, origins = zip(*named, strict=True)
    return pa.table(
        {
            "who": ["a"] * len(named),
            "_origin": origins,
            "_path": ["0"] * len(named),
            "_from": partitions,
            "_arrived": [0] * len(named),
        }
    )


def test_records_split_from_one_under_one_origin_are_refused() -> None:
    replay = rows(("hits/0:7", "0:3"), ("hits/0:8", "0:3"))  # the tier before wrote the record twice
    split = rows(("hits/0:7", "0:3:0"), ("hits/0:7", "0:3:1"))
    for accepted in (replay, split):
        refuse_namesakes(accepted)
    with pytest.raises(NamesakesError, match=r"made 2 records of hits/0:7, .*dropDuplicates"):
        refuse_namesakes(rows(("hits/0:6", "0:2"), ("hits/0:7", "0:3"), ("hits/0:7", "0:3")))


@pytest.mark.parametrize("counted", [("who",), ("n", "nowhere")])
def test_only_whole_number_columns_can_be_counted(counted: tuple[str, ...]) -> None:
    with pytest.raises(
        DeclarationError, match=f'sink "sums": counted names {counted[-1]}; name columns of type smallint, '
    ):
        replace(SUMS, counted=counted)


def test_a_gap_is_the_time_since_the_last_batch_of_another_run(monkeypatch: pytest.MonkeyPatch) -> None:
    written = Counts(5, 5, 0, 0, 0, 0, 0, 5)
    monkeypatch.setattr(sink, "refuse_namesakes", lambda _rows: None)
    monkeypatch.setattr(sink, "sink_rows", lambda rows: (rows, [int(time.time() * 1000) - 500_000]))

    def first_batches(last: LastBatch | None) -> float | None:
        engine = query()
        engine._records.quarantine = cast(
            "Any", SimpleNamespace(split=lambda rows: (rows, ()), put=lambda _: None)
        )
        engine._writer.ledger.write = lambda *_, **_more: written  # type: ignore[method-assign]
        engine.last = last
        for begin in (15, 20):
            engine.put(Batch({"hits/0": begin}, {"hits/0": begin + 5}))
            engine.last = LastBatch(8, {"hits/0": begin + 5}, time.time() - 100, 0.0)
        return engine.gap()

    assert first_batches(None) is None, "the first batch of a tier has no gap"
    assert first_batches(LastBatch(7, {"hits/0": 15}, time.time() - 7, 0.0)) == pytest.approx(7, abs=1)


def test_a_batch_that_corrects_the_ledger_lowers_no_counter() -> None:
    writer = query()._writer
    for filtered, late in ((3, 1), (-2, -1)):
        counts = Counts(5, 5 - filtered - late, filtered, 0, 0, late, 0, 5)
        writer._note(Stored(counts, time.time(), [], None), Batch({"hits/0": 0}, {"hits/0": 5}))
    assert (writer._commits.filtered, writer._commits.late) == (3, 1)


def test_the_time_of_batches_is_counted_with_its_fixed_part(clock: list[float]) -> None:
    sizes = [10] * COLD_BATCHES + [10, 30, 20]
    engine, places = query(), [0, *accumulate(sizes)]
    engine._checkpoint = cast("Any", SimpleNamespace(ends=lambda number: {"hits/0": places[number]}))
    engine._job = cast("Any", SimpleNamespace(put=lambda *_: None, writes_behind=False))
    engine._writer.held.set()  # so that no batch waits for its interval
    for number, records in enumerate(sizes, start=1):

        def collect(seconds: float = 0.5 + records / 100) -> None:
            clock[0] += seconds

        engine._take(cast("Any", SimpleNamespace(toArrow=collect)), number)
    flow = engine._config.flow
    assert flow.busy_seconds == pytest.approx(len(sizes) * 0.5 + sum(sizes) / 100)
    assert 0.9 < flow.fixed_seconds < 1.0, "cold batches and the first of the others tell nothing"


class SlowWrites:
    """A job whose writes wait until they may end, or fail."""

    writes_behind = True

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.done: list[int] = []
        self.may_end = threading.Event()
        self.error: Exception | None = None

    def put(self, _rows: object, _batch: Batch, number: int) -> None:
        self.begun.append(number)
        assert self.may_end.wait(10)
        if self.error is not None:
            raise self.error
        self.done.append(number)


def taking(sizes: list[int], most: int) -> tuple[FakeSinkEngine, SlowWrites, Callable[[int], None]]:
    """Return an engine, its job, and a function that has the query take batch N of these sizes."""
    engine, job, places = query(), SlowWrites(), [0, *accumulate(sizes)]
    engine._checkpoint = cast(
        "Any", SimpleNamespace(ends=lambda number: {"hits/0": places[number]}, drop=lambda: None)
    )
    engine._job, engine._most = cast("Any", job), most
    engine._query = cast("Any", SimpleNamespace(isActive=True, status={"isDataAvailable": False}))
    frame = cast("Any", SimpleNamespace(toArrow=lambda: None))
    engine._writer.held.set()  # so that no batch waits for its interval
    return engine, job, lambda number: engine._take(frame, number)


def test_the_next_batch_is_collected_while_a_full_one_is_written() -> None:
    engine, job, take = taking([10, 10, 3], most=10)
    take(1)
    assert job.done == []
    next_batch = threading.Thread(target=take, args=(2,))
    next_batch.start()
    time.sleep(0.1)
    assert job.begun == [1], "batches are written one after the other"
    job.may_end.set()
    next_batch.join(10)
    take(3)
    assert job.done == [1, 2, 3], "a batch that is not full is written before the query goes on"
    assert engine._read == {"hits/0": 23}


def test_an_unwritten_full_batch_is_not_caught_up(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, job, take = taking([10], most=10)
    monkeypatch.setattr(batch_engine, "is_idle", lambda _query: True)
    assert engine.caught_up()
    take(1)
    assert not engine.caught_up()
    job.may_end.set()
    engine._behind.finish()
    assert engine.caught_up()


def test_a_failed_write_ends_the_query_though_no_record_follows(clock: list[float]) -> None:
    engine, job, take = taking([10], most=10)
    stopped = SimpleNamespace(isActive=True, exception=lambda: None)
    stopped.stop = lambda: vars(stopped).update(isActive=False)
    engine._query, job.error = cast("Any", stopped), FencedError("another incarnation has written")
    take(1)
    engine.check()
    assert stopped.isActive, "nothing has failed yet"
    job.may_end.set()
    with suppress(FencedError):
        engine._behind._pending.result(10)  # type: ignore[union-attr]
    with pytest.raises(FencedError):
        engine.check()
    assert clock
    assert not stopped.isActive


def test_the_next_run_begins_after_the_write_that_goes_on() -> None:
    engine, job, take = taking([10], most=10)
    looks: list[list[int]] = []

    def look() -> None:
        looks.append([*job.done])

    engine._writer.ledger.last = look  # type: ignore[method-assign]
    records = engine._records
    engine._job = cast(
        "Any",
        SimpleNamespace(
            put=job.put,
            writes_behind=True,
            begin=lambda *_: RunStart({}, cast("Any", engine._checkpoint)),
            continue_in_new_stream=records.continue_in_new_stream,
        ),
    )
    take(1)
    threading.Timer(0.2, job.may_end.set).start()
    engine.run()
    assert looks == [[1]]


def test_a_slow_archive_does_not_hold_the_driver_and_its_error_ends_it() -> None:
    engine, written, begun = query(), threading.Event(), []

    def write() -> int:
        begun.append(1)
        assert written.wait(10)
        if len(begun) == 1:
            return 1
        message = "no right to read the table"
        raise PermissionError(message)

    engine._archives = [cast("Any", SimpleNamespace(due=lambda: True, write=write, close=lambda: None))]
    engine._query = cast("Any", SimpleNamespace(isActive=True))
    engine.tick()
    engine.tick()
    assert len(begun) == 1, "the second round waits for the first one"
    written.set()

    def tick_on() -> None:
        while True:
            engine.tick()
            time.sleep(0.01)

    with pytest.raises(PermissionError):
        tick_on()
