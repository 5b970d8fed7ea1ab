"""Partitions are added to a tier's outputs while runs follow each other, run beside each other and die: no record takes two ways."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sluice.api.declarations import Stream, Tier
from sluice.api.grouping import Fields, Global
from sluice.api.marks import first_seen
from sluice.driver.control import routing_epochs as ways
from sluice.driver.control.routing_epochs import ALONE_SECONDS, LocalAgreement, SoleWriter
from sluice.driver.engine import partition_growth, streams
from sluice.driver.engine.settings import EngineConfig
from sluice.driver.engine.streams import StreamsEngine
from sluice.kafka.positions import OutputRecord
from sluice.kafka.reader import Bounds, Seen, StreamError
from sluice_ops.channel.client import ChannelAwayError
from sluice_ops.model.routing_epochs import Way, Ways, begun, newest
from sluice_ops.model.tier import Kind, Mode
from tests.unit.sluice.controlled import FakeControl
from tests.unit.sluice.few import Few

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
    """One input, one output by key, and what the runs have said to each other."""

    def __init__(self):
        self.now, self.end, self.count = 1000.0, 0, 2
        self.out: dict[int, list[OutputRecord]] = {number: [] for number in range(20)}
        self.put: list[tuple[int, int]] = []
        """Offsets of the input with the partition of the output, in the order in which they were put."""
        self.said = LocalAgreement()
        self.owner: Any = None
        self.beside: Any = None
        self.fails, self.lost, self.away = False, False, False

    # -- the streams

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

    # -- what is put

    def take(self, offset, by, count):
        partition = key(offset) % count
        self.out[partition].append(OutputRecord(by, RAW, offset, 0))
        self.put.append((offset, partition))


class Said(FakeControl):
    """One run's end of what all have said."""

    def __init__(self, world, run):
        super().__init__()
        self.world, self.run = world, run

    @property
    def owns(self):
        return self.world.owner is self.run

    def agreed_ways(self):
        if self.world.lost and self._asked():
            self.world.lost = False
            message = "ZooKeeper is away"
            raise ChannelAwayError(message)
        return self.world.said.agreed_ways()

    def _asked(self):
        return self.run._metered is not None

    def announce_ways(self, ways):
        self.world.said.announce_ways(ways)

    def switch_ways(self, ways):
        assert self.world.beside is None
        if self.world.fails:
            self.world.fails = False
            return False
        return self.world.said.switch_ways(ways)

    def other_writer(self):
        return None if self.world.owner is self.run and self.world.beside is None else "another run"


class Run(StreamsEngine):
    """Puts records out when it is told to, in the order of its input."""

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
            workers=Few(),
        )
        super().__init__(config, Said(world, self))

    def _start(self, begins, _folder, *, by, suffix=""):
        self.by, self.at = by, begins[RAW]
        self.count = self._growth.partitions(self._ways, suffix)["hits"]
        query = SimpleNamespace(isActive=True, exception=lambda: None, runId=None)
        query.stop = lambda: setattr(query, "isActive", False)
        return cast("Any", query)

    def _run_job(self, begins, until):
        for offset in range(begins[RAW], until[RAW]):
            self.world.take(offset, self._by, self._growth.partitions(self._ways, "")["hits"])

    def _is_planned(self):
        return True

    def flow(self, count):
        """Put so many out, as far as there are any."""
        if self._query is None or not self._query.isActive:
            return
        for offset in range(self.at, min(self.at + count, self.world.end)):
            self.world.take(offset, self.by, self.count)
            self.at = offset + 1


@pytest.fixture
def patched(monkeypatch):
    monkeypatch.setattr(streams, "install_guard", lambda _: {})
    monkeypatch.setattr(streams, "Handover", lambda *_: SimpleNamespace(stop=lambda: None))


def play(world, seconds, rate=1):
    """Have so many records come in each second, and the runs put them out."""
    for _ in range(seconds):
        world.now += 1
        world.end += rate
        for run in (world.owner, world.beside):
            if run is not None:
                run.flow(3 * rate)
                run.check()
                run.tick()


def begin(world, number, tmp_path):
    run = Run(world, number, tmp_path)
    run.run()
    return run


def judge(world):
    """Every record is new once to whoever reads behind marks, and goes one way."""
    paths, origins = (
        [f"0/{partition}" for _, partition in world.put],
        [f"0:{offset}" for offset, _ in world.put],
    )
    new = first_seen({}, paths, origins)
    assert [origins[row] for row in new] == list(dict.fromkeys(origins)), (
        "what is new is what was put for the first time"
    )
    assert len({offset for offset, _ in world.put}) == len(set(world.put))


EVENTS = ("more", "more", "add", "fail", "restart", "hold", "hand over", "call off", "refuse", "lose")


class History:
    """What happens to the runs of a tier, event by event."""

    def __init__(self, world, tmp_path):
        self.world, self.tmp_path, self.number = world, tmp_path, 1
        world.owner = begin(world, 1, tmp_path)
        play(world, 3)

    def next(self):
        self.number += 1
        return begin(self.world, self.number, self.tmp_path)

    def happens(self, event):
        world = self.world
        match event:
            case "add" if world.count < 8:
                world.count += 1
            case "fail" if world.owner._query is not None:  # it is begun again in place
                world.owner._query.isActive, world.owner._query.exception = (
                    False,
                    lambda: RuntimeError("an executor is gone"),
                )
            case "restart":  # after a kill too
                world.owner = self.next()
            case "hold":
                world.owner.hold()
                world.owner.run()
            case _:
                self.meets_others(event)

    def meets_others(self, event):
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
def test_each_record_is_new_once_whatever_happens_to_the_runs(tmp_path, soon, events):
    world = soon()
    history = History(world, tmp_path)
    for event in events:
        history.happens(event)
        play(world, 3)
    world.beside = None
    play(world, 80 + world.end // 2)  # a run that was begun again last puts all of it once more
    judge(world)
    assert {offset for offset, _ in world.put} >= set(range(world.end - 5)), "nothing is left out"
    assert world.owner.count == world.count, "in the end all partitions are used"


@pytest.fixture
def soon(patched, monkeypatch):
    """Make worlds where runs are alone after some seconds."""
    del patched
    monkeypatch.setattr(ways, "ALONE_SECONDS", 8.0)
    monkeypatch.setattr(partition_growth, "ADDED_SECONDS", 4.0)

    def made():
        world = World()
        monkeypatch.setattr(streams.time, "monotonic", lambda: world.now)
        return world

    return made


@pytest.fixture
def world(patched, monkeypatch):
    del patched
    made = World()
    monkeypatch.setattr(streams.time, "monotonic", lambda: made.now)
    return made


def test_a_run_that_counts_anew_would_have_records_taken_twice(world, tmp_path):
    world.owner = begin(world, 1, tmp_path)
    play(world, 40)
    world.count = 3
    world.said = LocalAgreement()
    world.owner = begin(world, 2, tmp_path)
    play(world, 40)
    with pytest.raises(AssertionError):
        judge(world)


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
    since = world.said.agreed_ways().since[RAW]
    assert all(partition == key(offset) % (2 if offset < since else 3) for offset, partition in world.put)
    judge(world)


def test_order_by_key_goes_on_over_the_change(world, tmp_path):
    world.owner = begin(world, 1, tmp_path)
    play(world, 30)
    world.count = 3
    play(world, 200)
    since = world.said.agreed_ways().since[RAW]
    first = next(index for index, (offset, _) in enumerate(world.put) if offset >= since)
    assert {offset for offset, _ in world.put[:first]} == set(range(since)), (
        "all before is out before the first that goes another way"
    )
    assert min(offset for offset, _ in world.put[first:]) == since


def test_a_run_that_nobody_tells_of_holds_it_up_while_its_records_show(world, tmp_path):
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


def test_where_nothing_comes_out_or_much_waits_it_keeps_to_its_ways(world, tmp_path):
    world.owner = begin(world, 1, tmp_path)
    play(world, 5)
    world.count = 3
    play(world, 300, rate=0)
    assert world.owner.count == 2
    world.end += TIER.max_offsets + 5_000
    play(world, 100)
    assert "it is behind" in world.owner._config.flow.narrow
    judge(world)


def test_a_look_that_kafka_does_not_answer_stops_nothing(world, tmp_path):
    world.owner = begin(world, 1, tmp_path)
    play(world, 5)
    query, world.away = world.owner._query, True
    play(world, 200)
    assert query.isActive
    assert world.owner._query is query


def test_a_job_that_fails_in_between_leaves_it_by_its_ways(world, tmp_path, monkeypatch):
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
    judge(world)


def test_ways_say_what_is_unused_and_take_in_what_is_new_or_made_anew():
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
        (Way(since={RAW: 7}, partitions={"hits": 3, "bad": 4}), None),
    ]
    assert Ways.model_validate_json(wider.model_dump_json()) == wider


def test_a_warm_up_is_routed_as_its_run_and_over_existing_partitions(world, tmp_path):
    run = Run(world, 1, tmp_path)
    assert run._growth.partitions(None, "") == {"hits": 2, "one": 1, "raw.quarantine": 1}, (
        "nobody has said anything"
    )
    gone = begun({"hits": 2, "gone": 9})
    world.said.announce_ways(gone.widened({"hits": 7}, {RAW: 3}))
    world.count = 9
    assert run._growth.partitions(None, "")["hits"] == 7
    assert run._growth.partitions(None, ".warm-up")["hits"] == 1


def test_alone_is_who_has_shown_itself_and_nobody_else_for_a_minute():
    alone = SoleWriter()
    alone.look(0, "t/1", {"t/1"})
    assert not alone.lasts(ALONE_SECONDS - 1)
    assert alone.lasts(ALONE_SECONDS)
    alone.look(50, "t/1", {"t/1", "t/0"})
    assert not alone.lasts(500)
    alone.look(60, "t/1", ())
    assert not alone.lasts(500), "nothing has come out"
