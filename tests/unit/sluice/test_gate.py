"""A gate that is throttled and released: how many records it takes, and in which runs.

The stream is a number, and Spark is replaced.
"""

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
from sluice_ops.model.ids import UnitId
from sluice_ops.model.incarnation import Receipt
from sluice_ops.model.tier import Kind, Mode
from tests.unit.sluice.fake_control import FakeControl
from tests.unit.sluice.fake_identities import Answers
from tests.unit.sluice.fake_workers import ONE, OTHER, FakeWorkers

BATCH = 100
RAW = "raw/0"
AWAY = "Kafka does not answer"
JOINED = UnitId("slot-counts-1-2")


class FakeInput(FakeControl):
    """One partition with `end` records, the controller's decision to throttle, and a clock."""

    def __init__(self):
        super().__init__()
        self.end = 0
        self.width = 1
        self.known_width = 1
        """The partitions at the last `renew`."""
        self.admitted = None
        self.seconds_without_controller = 0.0
        self.now = 1000.0
        self.away = False
        self.renewed = False
        self.marks = 0
        """The number of last offsets that are transaction markers."""

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
            for number in range(self.known_width)
        }
        return Bounds(dict.fromkeys(ends, 0), ends)

    def renew(self):
        self.renewed, self.known_width = True, self.width

    def partitions(self, _topic):
        if self.away:
            raise StreamError(AWAY)
        return self.width

    def last(self, *_asked, **_more):
        return []

    def read(self, *_asked):
        return []


class Query:
    """A query that runs until it is stopped, and runs tasks on executors that get tasks."""

    isActive = True  # noqa: N815 — the name in Spark

    def __init__(self, workers):
        self.workers = workers

    def stop(self):
        self.isActive = False
        self.workers.busy = set()


class Gate(StreamsEngine):
    """An engine that records its runs and jobs instead of starting them in Spark."""

    def __init__(self, config, control):
        super().__init__(config, control)
        self.runs, self.jobs, self.breaks = [], [], False
        self.starts_without_workers = []
        """Runs that started while no executor got tasks."""

    def _start(self, begins, _folder, *, by, suffix=""):
        del suffix
        self.runs.append((by, begins[RAW]))
        workers = self._config.workers
        if workers.without_tasks == {*workers.on.values()}:
            self.starts_without_workers.append(by)
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
def source():
    return FakeInput()


@pytest.fixture
def gate(source, tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "install_guard", lambda _: {})
    monkeypatch.setattr(streams, "HandoverWatch", lambda *_: SimpleNamespace(stop=lambda: None))
    monkeypatch.setattr(streams.time, "monotonic", lambda: source.now)
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
        streams=cast("Any", source),
        kafka="kafka",
        postgres="postgres",
        home=tmp_path,
        workers=FakeWorkers(),
    )
    return Gate(config, source)


def pass_time(gate, source, seconds):
    for _ in range(int(seconds * 4)):
        source.now += 0.25
        gate.check()
        gate.tick()


def test_a_gate_runs_holds_meters_and_continues_from_its_position(gate, source):
    source.end = 50
    assert gate.run().positions == {RAW: 0}
    pass_time(gate, source, 10)
    assert gate.runs == [("entry/7", 0)]
    source.admitted = 0.0
    source.end = 950
    pass_time(gate, source, 600)
    assert gate._query is None
    assert gate._config.flow.metered
    assert gate.jobs == [], "a gate at rate zero takes no records"
    assert gate.caught_up()
    source.admitted = 20.0
    pass_time(gate, source, 10 * ROUND_SECONDS)
    assert gate.jobs == [("entry/7.1", at, at + 40) for at in range(0, 400, 40)]
    source.admitted = None
    pass_time(gate, source, 20 * ROUND_SECONDS)
    assert {by for by, _, _ in gate.jobs} == {"entry/7.1"}
    assert [begin for _, begin, _ in gate.jobs[1:]] == [end for _, _, end in gate.jobs[:-1]]
    assert gate.runs[1:] == [("entry/7.2", 950)], "a record was processed twice or left out"
    assert gate.settled() == gate.complete_floor() == {RAW: 950}
    assert not gate._config.flow.metered


def test_transaction_markers_are_not_awaited_without_a_live_producer(gate, source, monkeypatch):
    monkeypatch.setattr(
        streams,
        "HandoverWatch",
        lambda *_: SimpleNamespace(stop=lambda: None, is_level=lambda: False, behind=lambda: False),
    )
    read = [0]
    monkeypatch.setattr(handover_watch, "records_read", lambda _session: (read[0], 1))
    source.end, source.marks = 100, 3

    def caught_up(seconds):
        for _ in range(seconds):
            source.now += 1
            caught_up = gate.caught_up()
        return caught_up

    gate.run()
    source.away = True
    assert not caught_up(60), "the position is unknown while Kafka is away"
    source.away = False
    assert not caught_up(60), "no record is read yet"
    read[0] = 96
    assert not caught_up(60), "one record is missing"
    read[0] = 97
    assert caught_up(1)


def test_new_partitions_are_read_within_a_minute_if_threads_suffice(gate, source):
    gate.run()
    pass_time(gate, source, 70)
    source.width, source.renewed = 3, False
    pass_time(gate, source, 70)
    assert source.renewed
    assert len(gate.runs) == 1
    assert gate._query.isActive, "the query must continue to read the former partitions"
    assert "`sluice scale entry 3`" in gate._config.flow.unread
    source.width = 2
    pass_time(gate, source, 70)
    assert len(gate.runs) == 2
    assert gate._config.flow.unread is None
    assert gate._begins.keys() == {RAW, "raw/1"}


def test_a_throttled_gate_reads_new_partitions_within_a_minute(gate, source):
    source.end, source.admitted = 100, 10.0
    gate.run()
    pass_time(gate, source, 20)
    source.width = 2
    pass_time(gate, source, 70)
    assert gate.complete_floor() == {RAW: 100, "raw/1": 100}
    assert gate.runs == []
    assert gate._config.flow.restarts == 0


def test_a_query_without_threads_for_new_partitions_does_not_restart(gate, source):
    gate.run()
    source.width = 3
    with pytest.raises(
        CapacityError,
        match="3 partitions that it reads, and 2 workers of 1 threads have 2; run `sluice scale entry 3`",
    ):
        gate.run()
    assert len(gate.runs) == 1


def test_a_gate_is_throttled_between_two_jobs_without_a_new_run(gate, source):
    source.end, source.admitted = 10_000, 0.0
    gate.run()
    for _ in range(3):
        source.admitted = BATCH / ROUND_SECONDS
        pass_time(gate, source, 1)
        source.admitted = 0.0
        pass_time(gate, source, 100)
    assert [(begin, end) for _, begin, end in gate.jobs] == [(0, 100), (100, 200), (200, 300)]
    assert gate.runs == []
    assert gate.positions() == gate.complete_floor() == {RAW: 300}
    assert gate.offset_sum() == 300
    assert gate.hold().positions == {RAW: 300}
    assert not gate._config.flow.metered


def test_a_failed_job_restarts_under_its_own_name_and_metered(gate, source):
    source.end, source.admitted = 1000, 0.0
    gate.run()
    source.admitted, gate.breaks = BATCH / ROUND_SECONDS, True
    pass_time(gate, source, 2 * ROUND_SECONDS)
    assert gate._config.flow.restarts == 1
    assert gate.jobs[0] == ("entry/7.1", 0, 100), "the job must not run under the name of the failed run"
    assert gate.runs == []


def test_without_a_controller_a_hold_ends_and_the_gate_does_not_flood(gate, source):
    source.end, source.admitted, source.seconds_without_controller = 100_000, 0.0, SILENT_SECONDS
    gate.run()
    pass_time(gate, source, 10 * SILENT_SECONDS)
    assert [end - begin for _, begin, end in gate.jobs] == [BATCH // 10] * 10


def test_the_gate_waits_for_kafka_without_a_limit(gate, source):
    source.end = 50
    gate.run()
    gate._query.isActive = False
    gate._query.exception = lambda: RuntimeError("the broker is gone")
    source.away = True
    pass_time(gate, source, 3600)
    assert gate._config.flow.away == AWAY
    source.away = False
    pass_time(gate, source, 5)
    assert [by for by, _ in gate.runs] == ["entry/7", "entry/7.1"]
    assert gate._config.flow.restarts == 1, "the query failed once"
    assert gate._config.flow.away is None


def test_a_query_that_a_full_disk_ended_is_restarted_without_limit(gate, source):
    source.end = 50
    gate.run()
    for _ in range(20):
        gate._query.isActive = False
        gate._query.exception = lambda: RuntimeError(
            "it wrote its offsets: java.io.IOException: No space left on device"
        )
        gate.check()
        assert "No space left on device" in gate._config.flow.away
        pass_time(gate, source, 6)
    assert len(gate.runs) == 21
    assert gate._config.flow.restarts == 0, "a full disk is no failure of the query"
    assert gate._config.flow.away is None


def test_a_running_query_survives_while_kafka_does_not_answer(gate, source):
    gate.run()
    pass_time(gate, source, 70)
    before, source.away = gate._query, True
    pass_time(gate, source, 600)
    assert gate._query is before
    assert gate._config.flow.restarts == 0
    source.away, source.width = False, 2
    pass_time(gate, source, 70)
    assert gate._begins.keys() == {RAW, "raw/1"}, "partitions added during the outage are read after it"


def test_a_gate_can_be_held_while_kafka_does_not_answer(gate, source):
    source.end = 50
    source.positions = lambda: [{RAW: 20}]
    gate.run()
    source.away = True
    assert gate.hold().positions == {RAW: 20}, "all records before this position are known to be out"
    assert gate._query is None
    source.away = False
    assert gate.run().positions == {RAW: 20}


def test_a_missing_stream_ends_the_run(gate, source, monkeypatch):
    gate.run()
    gate._query.isActive = False
    gate._query.exception = lambda: RuntimeError("it is gone")

    def gone(_topics):
        raise NoStreamError

    monkeypatch.setattr(source, "bounds", gone)
    with pytest.raises(NoStreamError):
        pass_time(gate, source, 5)


def test_a_run_does_not_start_behind_the_end_of_a_recreated_stream(gate, source):
    source.end = 50
    gate._own_starts = [{RAW: 70}]
    with pytest.raises(
        RecordsGoneError,
        match="raw/0 ends at 50, and was read up to 70: the stream was cut back or recreated, "
        "so the tier has stopped; the tier continues",
    ):
        gate.run()
    source.end = 71
    assert gate.run().positions == {RAW: 70}


def test_a_run_does_not_continue_in_a_recreated_stream(gate, source):
    ids, source.end = Answers(), 50
    receipts = [Receipt(positions={RAW: 20}, streams={"raw": "first"}, at=0.0)]
    source.positions = lambda: [{RAW: 20}]
    gate._inputs = SameStreams(Watch(ids), lambda: receipts, "")
    assert gate.run().streams == {"raw": "first"}
    assert gate.hold().streams == {"raw": "first"}
    ids.id, source.end = "second", 500
    with pytest.raises(RecordsGoneError, match="raw: the stream was deleted and recreated"):
        gate.run()


def test_a_stream_recreated_during_a_run_stops_the_query(gate, source):
    ids, source.end = Answers(), 50
    gate._inputs = SameStreams(Watch(ids), list, "")
    gate.run()
    query, ids.id = gate._query, "second"
    gate.check()
    with pytest.raises(RecordsGoneError, match="raw: the stream was deleted and recreated"):
        gate.check()
    assert not query.isActive


def test_the_next_run_reads_added_partitions(gate, source):
    gate.run()
    source.renewed = False
    gate.run()
    assert source.renewed


def test_finished_runs_leave_no_folders(gate, source, tmp_path):
    checkpoints = tmp_path / "checkpoints" / "entry"
    for folder in ("3.0", "6.12", "8.0", "internal"):
        (checkpoints / folder).mkdir(parents=True)
    source.end, source.admitted = 1000, 0.0
    gate.run()
    for _ in range(3):
        source.admitted = None if source.admitted == 0 else 0.0
        pass_time(gate, source, 60)
    assert gate._run >= 2
    assert {path.name for path in checkpoints.iterdir()} == {f"7.{gate._run}", "8.0", "internal"}, (
        "folders of later incarnations must stay"
    )


def test_the_query_restarts_when_a_worker_is_paused_or_woken(gate, source):
    workers = gate._config.workers
    source.end = 50
    gate.run()
    pass_time(gate, source, 5)
    for paused, working in ({ONE}, {"1"}), (set(), {"0", "1"}):
        before, workers.busy = gate._query, {"0", "1"}
        workers.pause_only(frozenset(paused))
        pass_time(gate, source, 5)
        assert not before.isActive
        assert gate._query.isActive
        assert gate._executors == working
        assert workers.without_tasks == {"0", "1"} - working
    assert gate.runs == [("entry/7", 0), ("entry/7.1", 0), ("entry/7.2", 0)], (
        "each run starts from the position that the output shows"
    )
    assert gate.starts_without_workers == ["entry/7.2"], (
        "after a wake, the next query's tasks wait until the former tasks have ended"
    )
    assert gate._config.flow.restarts == 0


def lose_a_worker(gate):
    """Lose the first worker, whose executor had tasks."""
    workers = gate._config.workers
    workers.busy = {"0", "1"} - workers.without_tasks
    del workers.on[ONE]
    gate.check()


def test_the_query_begins_again_on_a_spare_in_the_look_that_finds_a_loss(gate, monkeypatch):
    monkeypatch.setattr(streams, "why_gone", lambda *_: "executor 0 is gone")
    workers = gate._config.workers
    workers.rests_between_batches = False
    workers.pause_only(frozenset(), 1)
    gate.run()
    assert gate._executors == {"0"}
    lose_a_worker(gate)
    assert [by for by, _ in gate.runs] == ["entry/7", "entry/7.1"]
    assert gate._executors == workers.working() == {"1"}
    assert gate.starts_without_workers == ["entry/7.1"], "tasks wait for the end of the stopped ones"
    assert workers.without_tasks == set()
    assert gate._config.flow.restarts == 1, "the loss counts as a failure of the query"


def test_without_a_spare_the_query_waits_for_the_lost_worker(gate, source, monkeypatch):
    monkeypatch.setattr(streams, "why_gone", lambda *_: "executor 0 is gone")
    gate.run()
    lose_a_worker(gate)
    pass_time(gate, source, 5)
    assert [by for by, _ in gate.runs] == ["entry/7"]
    gate._config.workers.on[ONE] = "2"
    pass_time(gate, source, 1)
    assert gate._executors == {"1", "2"}


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
    assert [by for by, _ in gate.runs] == ["entry/7", "entry/7.1"], "the restart comes at the next look"


@pytest.mark.parametrize(
    ("paused", "paused_later", "working"), [(set(), {ONE}, {"1"}), ({ONE}, set(), {"0", "1"})]
)
def test_without_kafka_the_query_restarts_on_other_workers_later(gate, source, paused, paused_later, working):
    workers = gate._config.workers
    workers.pause_only(frozenset(paused))
    gate.run()
    before, source.away = gate._query, True
    workers.pause_only(frozenset(paused_later))
    pass_time(gate, source, 5)
    assert not before.isActive
    assert workers.working() == working
    assert workers.without_tasks == {"0", "1"} - working, "only the working executors get tasks"
    source.away = False
    pass_time(gate, source, 5)
    assert [by for by, _ in gate.runs] == ["entry/7", "entry/7.1"]
    assert gate._query.isActive
    assert gate._executors == working


class WarmUp:
    """A warm-up that is over when the test says so."""

    def __init__(self, _config, start, partitions):
        self.over, self.stopped, self.failure = False, False, None
        self.query = start(dict.fromkeys(partitions, 0), "folder")

    def is_over(self):
        return self.over

    def stop(self):
        self.stopped = True
        return self.failure


@pytest.fixture
def joining(gate, source, monkeypatch):
    """Return a gate whose query runs while a new executor comes; the warm-up has begun."""
    level = SimpleNamespace(stop=lambda: None, is_level=lambda: True)
    monkeypatch.setattr(streams, "HandoverWatch", lambda *_: level)
    monkeypatch.setattr(streams, "WarmUp", WarmUp)
    monkeypatch.setattr(streams, "why_gone", lambda *_: "executor 0 is gone")
    workers = gate._config.workers
    workers.rests_between_batches = False
    gate.run()
    workers.on[JOINED] = "2"
    look(gate, source)
    return gate


def look(gate, source):
    workers = gate._config.workers
    source.now += 0.25
    workers.pause_only(workers.to_pause, workers.active)
    gate.check()
    gate.tick()


def test_a_new_worker_is_warmed_alone_and_then_works_in_the_next_query(joining, source):
    workers = joining._config.workers
    assert workers.without_tasks == {"0", "1"}, "only the new worker warms up"
    assert workers.working() == joining._executors == {"0", "1"}
    assert JOINED not in workers.receipts(), "it has not joined yet"
    joining._warm_up.over = True
    look(joining, source)
    assert joining.runs == [("entry/7", 0), ("warm-up", 0), ("entry/7.1", 0)]
    assert joining.starts_without_workers == ["entry/7.1"], "tasks wait for the end of the stopped ones"
    assert joining._executors == {"0", "1", "2"}
    assert workers.without_tasks == set()
    assert workers.receipts()[JOINED].gap_seconds is None
    workers.note_gap(0.1)
    assert workers.receipts()[JOINED].gap_seconds == 0.1
    assert joining._config.flow.restarts == 0


def test_a_query_that_fails_during_a_warm_up_begins_again_on_all_workers(joining, source):
    warm_up, workers = joining._warm_up, joining._config.workers
    workers.on[ONE] = "3"
    look(joining, source)
    assert warm_up.stopped
    pass_time(joining, source, 1)
    assert joining._executors == {"1", "2", "3"}
    assert workers.without_tasks == set()


def test_a_hold_ends_the_warm_up(joining):
    warm_up = joining._warm_up
    joining.hold()
    assert warm_up.stopped
    assert joining._config.workers.without_tasks == set()


def test_throttling_ends_the_warm_up_and_the_new_worker_takes_part_in_jobs(joining, source):
    warm_up, source.admitted = joining._warm_up, 10.0
    look(joining, source)
    assert warm_up.stopped
    assert joining._config.workers.working() == {"0", "1", "2"}


def test_a_new_worker_that_dies_while_it_warms_up_disturbs_nothing(joining, source):
    warm_up, workers = joining._warm_up, joining._config.workers
    del workers.on[JOINED]
    warm_up.over, warm_up.failure = True, RuntimeError("executor 2 is gone")
    look(joining, source)
    assert [by for by, _ in joining.runs] == ["entry/7", "warm-up"]
    assert not workers.without_tasks & workers.working()
    workers.on[JOINED] = "4"
    look(joining, source)
    assert joining.runs[-1] == ("warm-up", 0), "its successor is warmed, too"


def test_a_new_worker_works_cold_if_it_cannot_be_warmed(gate, source, monkeypatch):
    level = SimpleNamespace(stop=lambda: None, is_level=lambda: True)
    monkeypatch.setattr(streams, "HandoverWatch", lambda *_: level)

    def fail(*_):
        message = "no warm-up stream"
        raise RuntimeError(message)

    monkeypatch.setattr(streams, "WarmUp", fail)
    gate._config.workers.rests_between_batches = False
    gate.run()
    gate._config.workers.on[JOINED] = "2"
    look(gate, source)
    assert gate._executors == {"0", "1", "2"}
    assert gate._config.flow.restarts == 0


def test_a_batch_that_ends_during_a_warm_up_gets_its_threads_first(joining, source, monkeypatch):
    warm_up = joining._warm_up
    monkeypatch.setattr(joining, "_committed", lambda: 0)
    look(joining, source)
    assert warm_up.stopped
    assert joining._config.workers.without_tasks == {"2"}, "the new worker is still cold"
    look(joining, source)
    assert joining._warm_up not in {None, warm_up}, "its warm-up begins again"


def test_a_spare_that_comes_back_is_warmed_and_waits(gate, source, monkeypatch):
    level = SimpleNamespace(stop=lambda: None, is_level=lambda: True)
    monkeypatch.setattr(streams, "HandoverWatch", lambda *_: level)
    monkeypatch.setattr(streams, "WarmUp", WarmUp)
    workers = gate._config.workers
    workers.rests_between_batches = False
    workers.pause_only(frozenset(), 1)
    gate.run()
    workers.on[OTHER] = "2"
    look(gate, source)
    gate._warm_up.over = True
    look(gate, source)
    assert (workers.spares, workers.working()) == ({OTHER}, {"0"})
    assert workers.without_tasks == {"1", "2"}, "the former executor has ended"
    assert [by for by, _ in gate.runs] == ["entry/7", "warm-up"], "the query goes on"
    workers.pause_only(frozenset(), 2)
    look(gate, source)
    assert gate._executors == {"0", "2"}
