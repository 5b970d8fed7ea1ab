"""The query of a tier with a sink when something is not as it should be: what it waits for, and what it ends for. Without Spark."""

import threading
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pyarrow as pa
import pytest

from sluice.api.declarations import DeclarationError, Stream, Tier
from sluice.api.sink import SinkAwayError
from sluice.driver.engine import batch_engine, batch_writer, sink
from sluice.driver.engine.batch_writer import HeldError, Stored
from sluice.driver.engine.settings import EngineConfig
from sluice.driver.engine.sink import SinkEngine
from sluice.driver.engine.sink_rows import NamesakesError, refuse_namesakes
from sluice.kafka.positions import RecordsGoneError
from sluice.kafka.reader import Bounds, NoStreamError, StreamError
from sluice.kafka.stream_identity import Watch
from sluice.kafka.truncation import ReadAgainError
from sluice.sinks.batches import Batch, LastBatch
from sluice.sinks.ledger import Counts
from sluice.sinks.table import Totals
from sluice_ops.model.tier import Kind
from tests.unit.sluice.answers import Answers
from tests.unit.sluice.controlled import FakeControl

SUMS = Totals("sums", {"who": "text", "n": "bigint"}, key=("who",))
LAST = LastBatch(7, {"hits/0": 15}, 0.0, 0.0)


class Query(SinkEngine):
    """Notes where it begins instead of having Spark do it."""

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

    def note(self, _rows: object, batch: Batch, _before: float | None) -> Stored:
        """Take a batch in the place of the sink."""
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


def query(oldest: int = 0, end: int = 20, stream: Stream | None = None) -> Query:
    bounds = Bounds({"hits/0": oldest}, {"hits/0": end})
    given = SimpleNamespace(
        renew=lambda: None, bounds=lambda _topics: bounds, places=lambda _topics: ["hits/0"]
    )
    tier = Tier(
        "counts", Kind.PROCESSING, (stream or Stream("hits", "who string"),), lambda hits: hits, sink=SUMS
    )
    return Query(engine_config(tier, 3, given))


def failed(made: Query) -> None:
    made._query = cast(
        "Any", SimpleNamespace(isActive=False, exception=lambda: RuntimeError("the broker is gone"))
    )


@pytest.mark.parametrize(
    "trouble", [psycopg.OperationalError("no route to host"), StreamError("Kafka does not answer")]
)
def test_what_is_away_is_waited_for_however_long(clock: list[float], trouble: Exception) -> None:
    made = query()
    failed(made)
    made.trouble = trouble
    for _ in range(3600):
        clock[0] += 1
        made.check()
    made.trouble = None
    clock[0] += 2
    made.check()
    assert made.begun == [{"hits/0": 15}]
    assert made._config.flow.restarts == 1


def test_a_stream_that_is_not_there_is_not_waited_for(clock: list[float]) -> None:
    made = query()
    failed(made)
    made.check()
    made.trouble = NoStreamError()
    clock[0] += 2
    with pytest.raises(NoStreamError):
        made.check()


def test_what_the_database_will_never_take_is_not_tried_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    made = query()

    def refuse(*_: object) -> None:
        message = "index row size 2800 exceeds maximum 2704"
        raise psycopg.errors.ProgramLimitExceeded(message)

    monkeypatch.setattr(made._job, "write", refuse)
    monkeypatch.setattr(batch_writer, "AWAY_SECONDS", 0.01)
    with pytest.raises(psycopg.errors.ProgramLimitExceeded):
        made.put(Batch({"hits/0": 15}, {"hits/0": 20}))


def test_retry_after_is_respected_and_a_hold_ends_the_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, waits = query(), list[float]()
    asked = [SinkAwayError("crm takes no records: it answers 429", wait) for wait in (0.0, 60.0)]

    def refuse(*_: object) -> None:
        raise asked.pop(0)

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if not asked:
            made._writer.held.set()

    monkeypatch.setattr(made._job, "write", refuse)
    monkeypatch.setattr(
        made._writer,
        "held",
        SimpleNamespace(wait=wait, set=(held := threading.Event()).set, is_set=held.is_set),
    )
    with pytest.raises(HeldError):
        made.put(Batch({"hits/0": 15}, {"hits/0": 20}))
    assert waits == [batch_writer.AWAY_SECONDS, 60.0]
    assert made._config.flow.away == "crm takes no records: it answers 429"


def test_where_records_are_gone_it_says_how_to_go_on() -> None:
    with pytest.raises(
        RecordsGoneError,
        match=r"hits/0: offsets 15 to 16 were never processed .* `sluice skip` lets the tier continue",
    ):
        query(17, 20).run()


def test_where_a_stream_was_made_anew_it_says_how_to_go_on() -> None:
    with pytest.raises(RecordsGoneError, match="hits/0 ends at 9") as said:
        query(0, 9).run()
    assert "update ledger set ends = '{}' where tier = 'counts' and batch = 7; then start it again" in str(
        said.value
    )
    with pytest.raises(RecordsGoneError, match="empty sums and the tier's rows in marks: new records"):
        query(0, 9, Stream("hits")).run()


def test_a_stream_that_was_made_anew_is_not_read_from_the_old_place() -> None:
    made = query(0, 500)
    made._writer.watch = Watch(Answers("second"))
    made.last = replace(LAST, streams={"hits": "first"})
    with pytest.raises(
        RecordsGoneError, match=r"hits: the stream was deleted and recreated.*`sluice skip counts`"
    ):
        made.run()
    made.last = LastBatch(8, {}, 0.0, 0.0, {"hits": "first"})
    assert made.run().positions == {"hits/0": 0}, "a person has had it go on with the oldest"


def test_an_id_that_was_not_known_is_taken_once() -> None:
    made, adopted = query(0, 500), list[dict[str, str]]()
    made._writer.watch = Watch(Answers("first"))
    made._writer.ledger.adopt_streams = adopted.append  # type: ignore[method-assign]
    began = made.run()
    assert (began.streams, began.epochs) == ({"hits": "first"}, {"hits/0": 3})
    assert adopted == [{"hits": "first"}]


def test_a_partition_that_was_cut_back_below_the_ledger_is_not_read_on() -> None:
    made, ids = query(0, 500), Answers("first")
    made._writer.watch = Watch(ids)
    made.last = replace(LAST, streams={"hits": "first"}, epochs={"hits/0": 3})
    assert made.run().positions == {"hits/0": 15}
    ids.epoch = 4
    assert made.run().epochs == {"hits/0": 4}, "a leader was elected, and has what was read"
    ids.end = 14
    with pytest.raises(
        RecordsGoneError,
        match=r"hits/0 was cut back to offset 14, and was read up to 15: .*`sluice skip counts`",
    ):
        made.run()
    made.last = replace(LAST, ends={})
    assert made.run().positions == {"hits/0": 0}, "a person has had it go on with the oldest"


def test_a_batch_that_was_read_while_a_leader_was_elected_is_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, ids = query(0, 500), Answers("first")
    made._writer.watch = Watch(ids)
    made.last = replace(LAST, streams={"hits": "first"}, epochs={"hits/0": 3})
    made.run()
    monkeypatch.setattr(made._job, "write", made.note)
    ids.epoch = 4
    with pytest.raises(ReadAgainError, match="hits/0"):
        made.put(Batch({"hits/0": 15}, {"hits/0": 20}))
    assert made.written == []
    made._query, made._error = cast("Any", SimpleNamespace(isActive=False)), ReadAgainError(["hits/0"])
    began = len(made.begun)
    made.check()
    assert len(made.begun) == began + 1
    assert made._config.flow.restarts == 0, "an election is no failure"
    made.put(Batch({"hits/0": 15}, {"hits/0": 20}))
    assert [batch.epochs for batch in made.written] == [{"hits/0": 4}]


def test_a_batch_is_not_written_when_its_stream_was_made_anew_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, ids = query(0, 500), Answers("first")
    made._writer.watch = Watch(ids)
    made.last = replace(LAST, streams={"hits": "first"})
    made.run()
    monkeypatch.setattr(made._job, "write", made.note)
    made.put(Batch({"hits/0": 15}, {"hits/0": 20}))
    ids.id = "second"
    with pytest.raises(RecordsGoneError, match="recreated"):
        made.put(Batch({"hits/0": 15}, {"hits/0": 20}))
    assert len(made.written) == 1


def test_it_goes_on_with_the_oldest_when_a_person_has_said_so() -> None:
    made = query(17, 20)
    made.last = LastBatch(7, {}, 0.0, 0.0)
    assert made.run().positions == {"hits/0": 17}


def rows(*named: tuple[str, str]) -> pa.Table:
    places, origins = zip(*named, strict=True)
    return pa.table(
        {
            "who": ["a"] * len(named),
            "_origin": origins,
            "_path": ["0"] * len(named),
            "_from": places,
            "_arrived": [0] * len(named),
        }
    )


def test_a_split_record_with_one_name_is_refused_where_replays_are_dropped() -> None:
    replay = rows(("hits/0:7", "0:3"), ("hits/0:8", "0:3"))  # the tier before has put it out again
    several = rows(("hits/0:7", "0:3:0"), ("hits/0:7", "0:3:1"))
    for each in (replay, several):
        refuse_namesakes(each)
    with pytest.raises(NamesakesError, match=r"made 2 records of hits/0:7, .*dropDuplicates"):
        refuse_namesakes(rows(("hits/0:6", "0:2"), ("hits/0:7", "0:3"), ("hits/0:7", "0:3")))


@pytest.mark.parametrize("counted", [("who",), ("n", "nowhere")])
def test_rows_are_counted_by_whole_numbers_only(counted: tuple[str, ...]) -> None:
    with pytest.raises(
        DeclarationError, match=f'sink "sums": counted names {counted[-1]}; name columns of type smallint, '
    ):
        replace(SUMS, counted=counted)


def test_a_gap_is_what_lies_behind_the_last_batch_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    written = Counts(5, 5, 0, 0, 0, 0, 0, 5)
    monkeypatch.setattr(sink, "refuse_namesakes", lambda _rows: None)
    monkeypatch.setattr(sink, "sink_rows", lambda rows: (rows, [int(time.time() * 1000) - 500_000]))

    def first_batches(last: LastBatch | None) -> float | None:
        made = query()
        made._records.quarantine = cast(
            "Any", SimpleNamespace(split=lambda rows: (rows, ()), put=lambda _: None)
        )
        made._writer.ledger.write = lambda *_, **_more: written  # type: ignore[method-assign]
        made.last = last
        for begin in (15, 20):
            made.put(Batch({"hits/0": begin}, {"hits/0": begin + 5}))
            made.last = LastBatch(8, {"hits/0": begin + 5}, time.time() - 100, 0.0)
        return made.gap()

    assert first_batches(None) is None, "there was none before the first one"
    assert first_batches(LastBatch(7, {"hits/0": 15}, time.time() - 7, 0.0)) == pytest.approx(7, abs=1)
