"""A gate that is held back and let go: what it lets in, and in which runs; over a stream that is a number, and without Spark."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from sluice.api.declarations import Stream, Tier
from sluice.driver.engine import handover_watch, streams
from sluice.driver.engine.intake import ROUND_SECONDS, SILENT_SECONDS
from sluice.driver.engine.settings import EngineConfig
from sluice.driver.engine.streams import StreamsEngine
from sluice.driver.spark.workers import CapacityError
from sluice.kafka.positions import RecordsGoneError
from sluice.kafka.reader import Bounds, NoStreamError, StreamError
from sluice.kafka.stream_identity import SameStreams, Watch
from sluice_ops.model.incarnation import Receipt
from sluice_ops.model.tier import Kind, Mode
from tests.unit.sluice.answers import Answers
from tests.unit.sluice.controlled import FakeControl
from tests.unit.sluice.few import ONE, Few

BATCH = 100
RAW = "raw/0"
AWAY = "Kafka does not answer"


class Input(FakeControl):
    """One partition with so many records, a controller's word, and a clock."""

    def __init__(self):
        super().__init__()
        self.end = 0
        self.width = 1
        self.held_back = False
        self.seconds_without_controller = 0.0
        self.now = 1000.0
        self.away = False
        self.renewed = False
        self.marks = 0
        """So many of its last offsets are marks of transactions."""

    def offsets_with_records(self, place, first, end):
        assert place == RAW
        if self.away:
            raise StreamError(AWAY)
        return set(range(first, end - self.marks))

    def bounds(self, topics):
        if self.away:
            raise StreamError(AWAY)
        ends = {
            f"{topic}/{number}": self.end if topic == "raw" else 0
            for topic in topics
            for number in range(self.width)
        }
        return Bounds(dict.fromkeys(ends, 0), ends)

    def renew(self):
        self.renewed = True

    def partitions(self, _topic):
        if self.away:
            raise StreamError(AWAY)
        return self.width

    def last(self, *_asked, **_more):
        return []

    def read(self, *_asked):
        return []


class Query:
    """Flows until it is stopped, and has tasks of those that are given some."""

    isActive = True  # noqa: N815 — Spark's name

    def __init__(self, workers):
        self.workers = workers

    def stop(self):
        self.isActive = False
        self.workers.busy = set()


class Gate(StreamsEngine):
    """Notes its runs and its jobs instead of having Spark do them."""

    def __init__(self, config, control):
        super().__init__(config, control)
        self.runs, self.jobs, self.breaks = [], [], False
        self.none_given = []
        """Runs that were begun while nobody was given tasks."""

    def _start(self, begins, _folder, *, by, suffix=""):
        del suffix
        self.runs.append((by, begins[RAW]))
        workers = self._config.workers
        if workers.without_tasks == {*workers.on.values()}:
            self.none_given.append(by)
        return cast("Any", Query(workers))

    def _is_planned(self):
        return True

    def _run_job(self, begins, until):
        if self.breaks:
            self.breaks = False
            message = "a task was killed"
            raise RuntimeError(message)
        self.jobs.append((self._by, begins[RAW], until[RAW]))


@pytest.fixture
def given():
    return Input()


@pytest.fixture
def gate(given, tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "install_guard", lambda _: {})
    monkeypatch.setattr(streams, "Handover", lambda *_: SimpleNamespace(stop=lambda: None))
    monkeypatch.setattr(streams.time, "monotonic", lambda: given.now)
    tier = Tier(
        "entry",
        Kind.ENTRY,
        (Stream("raw"),),
        lambda raw: raw,
        (Stream("hits", "n int"),),
        mode=Mode.REALTIME,
        max_offsets=BATCH,
    )
    config = EngineConfig(
        session=cast("Any", None),
        tier=tier,
        incarnation=7,
        streams=cast("Any", given),
        kafka="kafka",
        postgres="postgres",
        home=tmp_path,
        workers=Few(),
    )
    return Gate(config, given)


def pass_time(gate, given, seconds):
    for _ in range(int(seconds * 4)):
        given.now += 0.25
        gate.check()
        gate.tick()


def test_the_gate_flows_holds_meters_and_flows_again_from_its_position(gate, given):
    given.end = 50
    assert gate.run().positions == {RAW: 0}
    pass_time(gate, given, 10)
    assert gate.runs == [("entry/7", 0)]
    given.held_back = True
    given.end = 950
    pass_time(gate, given, 600)
    assert gate._query is None
    assert gate._config.flow.metered
    assert gate.jobs == [], "nothing is let in while it is held"
    assert gate.caught_up()
    given.held_back = False
    pass_time(gate, given, ROUND_SECONDS)
    assert gate.jobs == [("entry/7.1", 0, 100)]
    pass_time(gate, given, 3 * ROUND_SECONDS)
    assert [(begin, end) for _, begin, end in gate.jobs] == [
        (0, 100),
        *((at, at + 100) for at in range(100, 900, 100)),
        (900, 950),
    ]
    assert gate.runs[1:] == [("entry/7.2", 950)], "no record is put through twice, none is left out"
    assert gate.settled() == gate.complete_floor() == {RAW: 950}
    assert not gate._config.flow.metered


def test_transaction_markers_are_not_awaited_without_a_live_producer(gate, given, monkeypatch):
    monkeypatch.setattr(
        streams,
        "Handover",
        lambda *_: SimpleNamespace(stop=lambda: None, passed=lambda: False, behind=lambda: False),
    )
    read = [0]
    monkeypatch.setattr(handover_watch, "records_read", lambda _session: (read[0], 1))
    given.end, given.marks = 100, 3

    def caught_up(seconds):
        for _ in range(seconds):
            given.now += 1
            caught_up = gate.caught_up()
        return caught_up

    gate.run()
    given.away = True
    assert not caught_up(60), "nobody knows while Kafka is away"
    given.away = False
    assert not caught_up(60), "it has read nothing yet"
    read[0] = 96
    assert not caught_up(60), "one record is missing"
    read[0] = 97
    assert caught_up(1)


def test_new_partitions_are_read_within_a_minute_where_threads_suffice(gate, given):
    gate.run()
    pass_time(gate, given, 70)
    given.width, given.renewed = 3, False
    pass_time(gate, given, 70)
    assert given.renewed
    assert len(gate.runs) == 1
    assert gate._query.isActive, "what it can read it goes on reading"
    assert "`sluice scale entry 3`" in gate._config.flow.unread
    given.width = 2
    pass_time(gate, given, 70)
    assert len(gate.runs) == 2
    assert gate._config.flow.unread is None
    assert gate._begins.keys() == {RAW, "raw/1"}


def test_a_query_without_threads_for_new_partitions_does_not_restart(gate, given):
    gate.run()
    given.width = 3
    with pytest.raises(
        CapacityError,
        match="3 partitions that it reads, and 2 workers of 1 threads have 2; run `sluice scale entry 3`",
    ):
        gate.run()
    assert len(gate.runs) == 1


def test_it_is_held_again_between_two_jobs_without_beginning_anything_anew(gate, given):
    given.end, given.held_back = 10_000, True
    gate.run()
    for _ in range(3):
        given.held_back = False
        pass_time(gate, given, 1)
        given.held_back = True
        pass_time(gate, given, 100)
    assert [(begin, end) for _, begin, end in gate.jobs] == [(0, 100), (100, 200), (200, 300)]
    assert gate.runs == []
    assert gate.positions() == gate.complete_floor() == {RAW: 300}
    assert gate.offset_sum() == 300
    assert gate.hold().positions == {RAW: 300}
    assert not gate._config.flow.metered


def test_a_failed_job_restarts_under_its_own_name_and_metered(gate, given):
    given.end, given.held_back = 1000, True
    gate.run()
    given.held_back, gate.breaks = False, True
    pass_time(gate, given, 2 * ROUND_SECONDS)
    assert gate._config.flow.restarts == 1
    assert gate.jobs[0] == ("entry/7.1", 0, 100), (
        "what the failed one put out, its successor does not answer for"
    )
    assert gate.runs == []


def test_without_a_controller_a_hold_ends_and_the_gate_does_not_flood(gate, given):
    given.end, given.held_back, given.seconds_without_controller = 100_000, True, SILENT_SECONDS
    gate.run()
    pass_time(gate, given, 10 * SILENT_SECONDS)
    assert [end - begin for _, begin, end in gate.jobs] == [BATCH // 10] * 10


def test_it_waits_for_kafka_however_long_that_is_away(gate, given):
    given.end = 50
    gate.run()
    gate._query.isActive = False
    gate._query.exception = lambda: RuntimeError("the broker is gone")
    given.away = True
    pass_time(gate, given, 3600)
    assert gate._config.flow.away == AWAY
    given.away = False
    pass_time(gate, given, 5)
    assert [by for by, _ in gate.runs] == ["entry/7", "entry/7.1"]
    assert gate._config.flow.restarts == 1, "it has failed once"
    assert gate._config.flow.away is None


def test_a_query_that_a_full_disk_has_ended_is_begun_again_however_often(gate, given):
    given.end = 50
    gate.run()
    for _ in range(20):
        gate._query.isActive = False
        gate._query.exception = lambda: RuntimeError(
            "it wrote its offsets: java.io.IOException: No space left on device"
        )
        gate.check()
        assert "No space left on device" in gate._config.flow.away
        pass_time(gate, given, 6)
    assert len(gate.runs) == 21
    assert gate._config.flow.restarts == 0, "it never failed"
    assert gate._config.flow.away is None


def test_a_running_query_survives_while_kafka_does_not_answer(gate, given):
    gate.run()
    pass_time(gate, given, 70)
    before, given.away = gate._query, True
    pass_time(gate, given, 600)
    assert gate._query is before
    assert gate._config.flow.restarts == 0
    given.away, given.width = False, 2
    pass_time(gate, given, 70)
    assert gate._begins.keys() == {RAW, "raw/1"}, "what was added meanwhile is read then"


def test_it_can_be_held_while_kafka_does_not_answer(gate, given):
    given.end = 50
    given.positions = lambda: [{RAW: 20}]
    gate.run()
    given.away = True
    assert gate.hold().positions == {RAW: 20}, "up to there all is out for certain"
    assert gate._query is None
    given.away = False
    assert gate.run().positions == {RAW: 20}


def test_a_stream_that_is_not_there_is_not_waited_for(gate, given, monkeypatch):
    gate.run()
    gate._query.isActive = False
    gate._query.exception = lambda: RuntimeError("it is gone")

    def gone(_topics):
        raise NoStreamError

    monkeypatch.setattr(given, "bounds", gone)
    with pytest.raises(NoStreamError):
        pass_time(gate, given, 5)


def test_it_does_not_go_on_where_new_records_have_the_places_of_old_ones(gate, given):
    given.end = 50
    gate._own_starts = [{RAW: 70}]
    with pytest.raises(
        RecordsGoneError,
        match=r"raw/0 ends at 50, and was read up to 70: the stream was cut back or recreated, so the tier has stopped; the tier continues",
    ):
        gate.run()
    given.end = 71
    assert gate.run().positions == {RAW: 70}


def test_it_does_not_go_on_in_a_stream_that_was_made_anew(gate, given):
    ids, given.end = Answers(), 50
    said = [Receipt(positions={RAW: 20}, streams={"raw": "first"}, at=0.0)]
    given.positions = lambda: [{RAW: 20}]
    gate._inputs = SameStreams(Watch(ids), lambda: said, "")
    assert gate.run().streams == {"raw": "first"}
    assert gate.hold().streams == {"raw": "first"}
    ids.id, given.end = "second", 500
    with pytest.raises(RecordsGoneError, match="raw: the stream was deleted and recreated"):
        gate.run()


def test_a_stream_that_is_made_anew_under_it_stops_its_query(gate, given):
    ids, given.end = Answers(), 50
    gate._inputs = SameStreams(Watch(ids), list, "")
    gate.run()
    query, ids.id = gate._query, "second"
    gate.check()
    with pytest.raises(RecordsGoneError, match="raw: the stream was deleted and recreated"):
        gate.check()
    assert not query.isActive


def test_partitions_that_were_added_are_read_by_the_next_run(gate, given):
    gate.run()
    given.renewed = False
    gate.run()
    assert given.renewed


def test_runs_that_are_over_leave_no_folders(gate, given, tmp_path):
    checkpoints = tmp_path / "checkpoints" / "entry"
    for folder in ("3.0", "6.12", "8.0", "internal"):
        (checkpoints / folder).mkdir(parents=True)
    given.end, given.held_back = 1000, True
    gate.run()
    for _ in range(3):
        given.held_back = not given.held_back
        pass_time(gate, given, 30)
    assert gate._run >= 2
    assert {path.name for path in checkpoints.iterdir()} == {f"7.{gate._run}", "8.0", "internal"}, (
        "of later incarnations each has its own"
    )


def test_it_begins_again_where_a_worker_is_to_work_no_more_or_again(gate, given):
    workers = gate._config.workers
    given.end = 50
    gate.run()
    pass_time(gate, given, 5)
    for told, working in ({ONE}, {"1"}), (set(), {"0", "1"}):
        before, workers.busy = gate._query, {"0", "1"}
        workers.pause_only(frozenset(told))
        pass_time(gate, given, 5)
        assert not before.isActive
        assert gate._query.isActive
        assert gate._executors == working
        assert workers.without_tasks == {"0", "1"} - working
    assert gate.runs == [("entry/7", 0), ("entry/7.1", 0), ("entry/7.2", 0)], "from what its output tells"
    assert gate.none_given == ["entry/7.2"], (
        "of one that is woken: the tasks of the next query wait until those before have ended"
    )
    assert gate._config.flow.restarts == 0


def test_a_paused_worker_is_free_before_the_tier_restarts_without_it(gate):
    workers = gate._config.workers
    gate.run()
    workers.busy = {"0", "1"}
    workers.pause_only(frozenset({ONE}))
    gate.check()
    gate.tick()
    assert workers.is_idle()
    assert [by for by, _ in gate.runs] == ["entry/7"]
    gate.check()
    assert [by for by, _ in gate.runs] == ["entry/7", "entry/7.1"], "at the next look"


@pytest.mark.parametrize(("told", "then", "working"), [(set(), {ONE}, {"1"}), ({ONE}, set(), {"0", "1"})])
def test_where_kafka_is_away_it_begins_on_other_workers_a_little_later(gate, given, told, then, working):
    workers = gate._config.workers
    workers.pause_only(frozenset(told))
    gate.run()
    before, given.away = gate._query, True
    workers.pause_only(frozenset(then))
    pass_time(gate, given, 5)
    assert not before.isActive
    assert workers.working() == working
    assert workers.without_tasks == {"0", "1"} - working, "the others are given tasks"
    given.away = False
    pass_time(gate, given, 5)
    assert [by for by, _ in gate.runs] == ["entry/7", "entry/7.1"]
    assert gate._query.isActive
    assert gate._executors == working
