"""Partitions are added to a tier's outputs while runs follow each other, run beside each other and
die: no record takes two paths.
"""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sluice.api.declarations import Stream, Tier
from sluice.api.grouping import Fields, Global
from sluice.api.marks import first_seen
from sluice.driver.control import routing_epochs
from sluice.driver.control.routing_epochs import ALONE_SECONDS, LocalAgreement, SoleWriter
from sluice.driver.engine import partition_growth, streams
from sluice.driver.engine.settings import EngineConfig
from sluice.driver.engine.streams import StreamsEngine
from sluice.kafka.positions import OutputRecord
from sluice.kafka.reader import Bounds, Seen, StreamError
from sluice_ops.channel.client import ChannelAwayError
from sluice_ops.model.routing_epochs import RoutingEpoch, RoutingEpochs, begun, newest
from sluice_ops.model.tier import Kind, Mode
from tests.unit.sluice.fake_control import FakeControl
from tests.unit.sluice.fake_workers import FakeWorkers

RAW = "raw/0"
TIER = Tier(
    "entry",
    Kind.ENTRY,
    (Stream("raw"),),
    lambda raw: raw,
    (Stream("hits", "n int", Fields("n")), Stream("one", "n int", Global())),
    mode=Mode.REALTIME,
)


def key(offset):
    return (offset * 2654435761) % 1000


class World:
    """One input, one output by key, and the routing epochs that the runs have agreed."""

    def __init__(self):
        self.now, self.end, self.count = 1000.0, 0, 2
        self.out: dict[int, list[OutputRecord]] = {number: [] for number in range(20)}
        self.put: list[tuple[int, int]] = []
        """Input offset and output partition of each written record, in the order of writing."""
        self.agreement = LocalAgreement()
        self.owner: Any = None
        self.beside: Any = None
        self.newest = 0
        """The number of the newest run."""
        self.fails, self.lost, self.away = False, False, False

    # -- methods of the streams

    def renew(self):
        pass

    def partitions(self, topic):
        if self.away:
            message = "Kafka does not answer"
            raise StreamError(message)
        return self.count if topic == "hits" else 1

    def bounds(self, topics):
        ends = (
            {RAW: self.end}
            if topics == ["raw"]
            else {f"hits/{number}": len(self.out[number]) for number in range(self.count)}
        )
        return Bounds(dict.fromkeys(ends, 0), ends)

    def last(self, *_asked, **_more):
        return []

    def read(self, starts, ends):
        return [
            Seen(out, None)
            for (topic, number), first in starts.items()
            for out in self.out[number][first : ends[f"{topic}/{number}"]]
        ]

    # -- the output

    def take(self, offset, by, count):
        partition = key(offset) % count
        self.out[partition].append(OutputRecord(by, RAW, offset, 0))
        self.put.append((offset, partition))


class AgreeingControl(FakeControl):
    """The control of one run, with the agreement of all runs."""

    def __init__(self, world, run):
        super().__init__()
        self.world, self.run = world, run

    @property
    def owns(self):
        return self.world.owner is self.run

    def agreed_routing(self):
        if self.world.lost and self._asked():
            self.world.lost = False
            message = "ZooKeeper is away"
            raise ChannelAwayError(message)
        return self.world.agreement.agreed_routing()

    def _asked(self):
        return self.run._metered is not None

    def announce_routing(self, epochs):
        self.world.agreement.announce_routing(epochs)

    def switch_routing(self, epochs):
        assert self.world.beside is None
        if self.world.fails:
            self.world.fails = False
            return False
        return self.world.agreement.switch_routing(epochs)

    def other_writer(self):
        return None if self.world.owner is self.run and self.world.beside is None else "another run"


class Run(StreamsEngine):
    """A run that writes records when the test calls `flow`, in the order of its input."""

    at = 0

    def __init__(self, world, number, tmp_path):
        self.world = world
        config = EngineConfig(
            session=cast("Any", None),
            tier=TIER,
            incarnation=number,
            streams=cast("Any", world),
            kafka="kafka",
            postgres="postgres",
            home=tmp_path,
            workers=FakeWorkers(),
        )
        super().__init__(config, AgreeingControl(world, self))

    def _start(self, begins, _folder, *, by, suffix=""):
        self.by, self.at = by, begins[RAW]
        self.count = self._growth.partitions(self._routing, suffix)["hits"]
        query = SimpleNamespace(isActive=True, exception=lambda: None, runId=None)
        query.stop = lambda: setattr(query, "isActive", False)
        return cast("Any", query)

    def _run_job(self, begins, until):
        for offset in range(begins[RAW], until[RAW]):
            self.world.take(offset, self._by, self._growth.partitions(self._routing, "")["hits"])

    def _is_planned(self):
        return True

    def flow(self, count):
        """Write up to `count` further records of the input."""
        if self._query is None or not self._query.isActive:
            return
        for offset in range(self.at, min(self.at + count, self.world.end)):
            self.world.take(offset, self.by, self.count)
            self.at = offset + 1


@pytest.fixture
def patched(monkeypatch):
    monkeypatch.setattr(streams, "install_guard", lambda _: {})
    monkeypatch.setattr(streams, "HandoverWatch", lambda *_: SimpleNamespace(stop=lambda: None))


def play(world, seconds, rate=1):
    """Let `rate` records arrive each second, and the runs write them.

    A run that failed too often ends, and the next run follows the owner.
    """
    for _ in range(seconds):
        world.now += 1
        world.end += rate
        for run in (world.owner, world.beside):
            if run is None:
                continue
            run.flow(3 * rate)
            try:
                run.check()
                run.tick()
            except (ChannelAwayError, RuntimeError):
                if run is world.owner:
                    world.owner = begin(world, world.newest + 1, run._config.home)
                else:
                    world.beside = None


def begin(world, number, tmp_path):
    world.newest = number
    run = Run(world, number, tmp_path)
    run.run()
    return run


def check_output(world):
    """Check that a reader behind marks takes each record once, and that each record has
    one path.
    """
    paths, origins = (
        [f"0/{partition}" for _, partition in world.put],
        [f"0:{offset}" for offset, _ in world.put],
    )
    new = first_seen({}, paths, origins)
    assert [origins[row] for row in new] == list(dict.fromkeys(origins)), (
        "a reader must take exactly the first record of each origin"
    )
    assert len({offset for offset, _ in world.put}) == len(set(world.put))


EVENTS = ("more", "more", "add", "fail", "restart", "hold", "hand over", "call off", "refuse", "lose")


class History:
    """Events in the life of a tier's runs."""

    def __init__(self, world, tmp_path):
        self.world, self.tmp_path = world, tmp_path
        world.owner = begin(world, 1, tmp_path)
        play(world, 3)

    def next(self):
        return begin(self.world, self.world.newest + 1, self.tmp_path)

    def play_event(self, event):
        world = self.world
        match event:
            case "add" if world.count < 8:
                world.count += 1
            case "fail" if world.owner._query is not None:  # the query restarts in place
                world.owner._query.isActive, world.owner._query.exception = (
                    False,
                    lambda: RuntimeError("an executor is gone"),
                )
            case "restart":  # also after a kill
                world.owner = self.next()
            case "hold":
                world.owner.hold()
                world.owner.run()
            case _:
                self.play_event_of_others(event)

    def play_event_of_others(self, event):
        world = self.world
        match event:
            case "hand over":
                world.beside = world.beside or self.next()
                play(world, 10)
                world.owner, world.beside = world.beside, None
            case "stand by" if world.beside is None:
                world.beside = self.next()
            case "call off":
                world.beside = None
            case "refuse":
                world.fails = True
            case "lose":
                world.lost = True
            case "more":
                play(world, 30)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(events=st.lists(st.sampled_from([*EVENTS, "stand by"]), max_size=12))
@example(events=["add", *["fail"] * 3, "call off", "refuse", "lose", "lose", "more", "lose"])
def test_each_record_is_new_once_in_any_history_of_the_runs(tmp_path, make_world, events):
    world = make_world()
    history = History(world, tmp_path)
    for event in events:
        history.play_event(event)
        play(world, 3)
    world.beside = None
    play(world, 80 + world.end // 2)  # a run that restarted last writes all records again
    check_output(world)
    assert {offset for offset, _ in world.put} >= set(range(world.end - 5)), "a record was left out"
    assert world.owner.count == world.count, "the run must use all partitions in the end"


@pytest.fixture
def make_world(patched, monkeypatch):
    """Return a function that creates worlds in which a run counts as alone after 8 s."""
    del patched
    monkeypatch.setattr(routing_epochs, "ALONE_SECONDS", 8.0)
    monkeypatch.setattr(partition_growth, "ADDED_SECONDS", 4.0)

    def made():
        world = World()
        monkeypatch.setattr(streams.time, "monotonic", lambda: world.now)
        return world

    return made


@pytest.fixture
def world(patched, monkeypatch):
    del patched
    created = World()
    monkeypatch.setattr(streams.time, "monotonic", lambda: created.now)
    return created


def test_without_the_agreement_records_would_be_taken_twice(world, tmp_path):
    world.owner = begin(world, 1, tmp_path)
    play(world, 40)
    world.count = 3
    world.agreement = LocalAgreement()
    world.owner = begin(world, 2, tmp_path)
    play(world, 40)
    with pytest.raises(AssertionError):
        check_output(world)


def test_the_next_run_and_a_handover_keep_the_routing_for_a_minute(world, tmp_path):
    world.owner = begin(world, 1, tmp_path)
    play(world, 30)
    world.count = 3
    world.beside = begin(world, 2, tmp_path)
    play(world, 100)
    assert (world.owner.count, world.beside.count) == (2, 2)
    assert (
        world.owner._config.flow.narrow
        == "hits has 3 partitions and 2 of them get records, until this run is alone; another run"
    )
    world.owner, world.beside = world.beside, None
    play(world, int(ALONE_SECONDS))
    assert world.owner.count == 2
    play(world, int(ALONE_SECONDS))
    assert world.owner.count == 3
    assert world.owner._config.flow.narrow is None
    since = world.agreement.agreed_routing().since[RAW]
    assert all(partition == key(offset) % (2 if offset < since else 3) for offset, partition in world.put)
    check_output(world)


def test_the_order_by_key_is_kept_over_the_change(world, tmp_path):
    world.owner = begin(world, 1, tmp_path)
    play(world, 30)
    world.count = 3
    play(world, 200)
    since = world.agreement.agreed_routing().since[RAW]
    first = next(index for index, (offset, _) in enumerate(world.put) if offset >= since)
    assert {offset for offset, _ in world.put[:first]} == set(range(since)), (
        "all earlier records must be out before the first record of the new routing"
    )
    assert min(offset for offset, _ in world.put[first:]) == since


def test_records_of_an_unknown_run_delay_new_partitions(world, tmp_path):
    world.owner = begin(world, 1, tmp_path)
    lost = begin(world, 2, tmp_path)
    world.count = 3
    for _ in range(40):
        play(world, 5)
        lost.flow(5)
    assert world.owner.count == 2
    assert "records of no other one" in world.owner._config.flow.narrow
    play(world, 150)
    assert world.owner.count == 3


def test_a_run_without_output_or_with_much_lag_keeps_its_routing(world, tmp_path):
    world.owner = begin(world, 1, tmp_path)
    play(world, 5)
    world.count = 3
    play(world, 300, rate=0)
    assert world.owner.count == 2
    world.end += TIER.max_offsets + 5_000
    play(world, 100)
    assert "it is behind" in world.owner._config.flow.narrow
    check_output(world)


def test_a_look_without_an_answer_of_kafka_stops_no_query(world, tmp_path):
    world.owner = begin(world, 1, tmp_path)
    play(world, 5)
    query, world.away = world.owner._query, True
    play(world, 200)
    assert query.isActive
    assert world.owner._query is query


def test_a_failed_job_keeps_the_routing_until_the_restart(world, tmp_path, monkeypatch):
    world.owner = begin(world, 1, tmp_path)
    play(world, 30)
    world.count = 3
    through = Run._run_job

    def breaks(self, begins, until):
        monkeypatch.setattr(Run, "_run_job", through)
        through(self, begins, {RAW: (begins[RAW] + until[RAW]) // 2})
        message = "an executor is gone"
        raise RuntimeError(message)

    monkeypatch.setattr(Run, "_run_job", breaks)
    play(world, 300)
    assert world.owner.count == 3
    assert world.owner._config.flow.restarts == 1
    check_output(world)


def test_routing_epochs_name_unused_partitions_and_take_new_ones():
    first = begun({"hits": 2, "bad": 4})
    assert first.unused({"hits": 3, "bad": 4}) == {"hits": 3}
    assert first.taking_in({"hits": 3, "bad": 4}) is first
    wider = first.widened({"hits": 3, "bad": 4}, {RAW: 7})
    assert (wider.turn, wider.now, wider.since) == (1, {"hits": 3, "bad": 4}, {RAW: 7})
    anew = wider.taking_in({"hits": 3, "bad": 1, "more": 5})
    assert anew.turn == 2
    assert [way.partitions for way in anew.each] == [
        {"hits": 2, "bad": 1, "more": 5},
        {"hits": 3, "bad": 1, "more": 5},
    ]
    assert newest([None, wider, first]) is wider
    assert newest([None]) is None
    assert list(wider.stretches()) == [
        (first.each[0], {RAW: 7}),
        (RoutingEpoch(since={RAW: 7}, partitions={"hits": 3, "bad": 4}), None),
    ]
    assert RoutingEpochs.model_validate_json(wider.model_dump_json()) == wider


def test_a_warm_up_is_routed_as_its_run_and_over_existing_partitions(world, tmp_path):
    run = Run(world, 1, tmp_path)
    assert run._growth.partitions(None, "") == {"hits": 2, "one": 1, "raw.quarantine": 1}, (
        "without an agreement, the present partitions count"
    )
    gone = begun({"hits": 2, "gone": 9})
    world.agreement.announce_routing(gone.widened({"hits": 7}, {RAW: 3}))
    world.count = 9
    assert run._growth.partitions(None, "")["hits"] == 7
    assert run._growth.partitions(None, ".warm-up")["hits"] == 1


def test_a_run_is_alone_after_a_minute_of_only_its_own_records():
    sole_writer = SoleWriter()
    sole_writer.note_runs(0, "t/1", {"t/1"})
    assert not sole_writer.lasts(ALONE_SECONDS - 1)
    assert sole_writer.lasts(ALONE_SECONDS)
    sole_writer.note_runs(50, "t/1", {"t/1", "t/0"})
    assert not sole_writer.lasts(500)
    sole_writer.note_runs(60, "t/1", ())
    assert not sole_writer.lasts(500), "the run has written no record"
