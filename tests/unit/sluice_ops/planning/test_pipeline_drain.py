"""A drain to empty pauses writers before readers, proves that nothing is left, or goes back."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice_ops.model.change import DRAIN_TO_EMPTY, RESUME, ChangeSpec
from sluice_ops.model.pipeline_drain import PipelineDrain
from sluice_ops.model.tier import Delivery, Kind, Mode, TierSpec
from sluice_ops.planning.changes.kinds import KINDS
from sluice_ops.planning.changes.kinds.drain_to_empty import sources
from sluice_ops.planning.pipeline_drain import (
    FRESH_SECONDS,
    STILL_SECONDS,
    Audit,
    Empty,
    Fail,
    Flow,
    Look,
    Measured,
    Next,
    Returned,
    TierNow,
    Wait,
    next_turn,
    order,
    refuse,
)
from sluice_ops.planning.placement.cluster import RefusedError

NOW = 10_000.0
PARTITIONS = 2


def tier(name, inputs, outputs=(), distance=0):
    return TierSpec(
        name=name,
        kind=Kind.PROCESSING,
        mode=Mode.BATCH,
        delivery=Delivery.AT_LEAST_ONCE,
        inputs=tuple(inputs.split()),
        outputs=tuple(outputs.split()) if outputs else (),
        distance=distance,
    )


HITS = (
    tier("entry", "raw", "hits", 2),
    tier("enrich", "hits", "enriched", 1),
    tier("counts", "enriched"),
    tier("outbound", "enriched"),
)
CIRCLE = (
    tier("entry", "raw", "hits", 2),
    tier("enrich", "hits again", "enriched", 1),
    tier("retry", "enriched", "again rows"),
    tier("outbound", "rows"),
)


def started(**more):
    return PipelineDrain(run="r", by="b", begun_at=NOW, deadline_seconds=900, **more)


def now_of(spec, *, rests=False, **more):
    return TierNow(spec, asked=more.pop("asked", rests), rests=rests, **more)


def test_writers_come_before_readers_and_a_circle_is_one_group():
    assert order(HITS) == [("entry",), ("enrich",), ("counts",), ("outbound",)]
    assert order(CIRCLE[::-1]) == [("entry",), ("enrich", "retry"), ("outbound",)]
    assert sources(CIRCLE) == ("entry",)


def test_only_the_first_change_is_of_the_whole_pipeline():
    kind, names = KINDS[DRAIN_TO_EMPTY], {spec.name for spec in HITS}
    first, later = ChangeSpec(kind=kind.name), ChangeSpec(kind=kind.name, tiers=("counts",))
    assert (kind.is_of_all(first), kind.is_of_all(later)) == (True, False)
    assert kind.whole_tiers(first, HITS) == {"entry"}
    assert kind.whole_tiers(later, HITS) == {"counts"}
    assert KINDS["pause"].whole_tiers(ChangeSpec(kind="pause"), HITS) == names
    assert not KINDS["pause"].whole_tiers(ChangeSpec(kind="pause", workers=("slot-counts-1-0",)), HITS)
    assert KINDS[RESUME].whole_tiers(ChangeSpec(kind=RESUME, tiers=("entry",)), HITS) == {"entry"}


@pytest.mark.parametrize(
    ("tiers", "measured", "why"),
    [
        ([], Measured(), "no tier is published"),
        ([now_of(HITS[0])], Measured(missing="PostgreSQL does not answer"), "nobody can tell .* Nothing was"),
        ([now_of(HITS[0])], Measured(replays=("entry",)), "old records of entry are being reprocessed"),
        (
            [now_of(tier("entry", "raw again", "hits")), now_of(tier("back", "hits", "again"))],
            Measured(),
            "entry reads raw from outside and again, which leads back to it",
        ),
        (
            [now_of(HITS[0]), now_of(HITS[1], rests=True, positions={"hits/0": 3})],
            Measured(ends={"hits/0": 5, "raw/0": 99}),
            "enrich is paused or stopped, and 2 records .* `sluice resume enrich`",
        ),
    ],
)
def test_a_pipeline_that_cannot_become_empty_is_refused(tiers, measured, why):
    with pytest.raises(RefusedError, match=why):
        refuse(tiers, measured)


def flowing(lag, *, at=NOW + 100, rate=0.0, judges=True):
    audit = Audit(judged={}, once=1, lost=0, judges=judges, verdict="")
    return Measured(flows={"enrich": Flow(at, lag, rate)}, audits={"enrich": audit}, look=1.0)


AFTER_ENTRY = [now_of(HITS[0], rests=True, stopped_at=NOW), now_of(HITS[1])]


@pytest.mark.parametrize(
    ("measured", "expected"),
    [
        (flowing(0), Next(DRAIN_TO_EMPTY, ("enrich",))),
        (flowing(7, rate=2.5), Wait("enrich has 7 records left, and reads 2.5 a second")),
        (
            flowing(0, at=NOW + FRESH_SECONDS - 1),
            Wait("the lag of enrich is measured again; 0 records were left before"),
        ),
        (flowing(1, judges=False), Next(DRAIN_TO_EMPTY, ("enrich",))),
        (
            flowing(1, at=NOW + STILL_SECONDS - 1, judges=False),
            Wait("enrich has 1 record left, and reads 0 a second"),
        ),
        (
            Measured(missing="PostgreSQL does not answer"),
            Wait("the lag of enrich is unknown: PostgreSQL does not answer"),
        ),
    ],
)
def test_a_tier_is_paused_when_it_seems_empty(measured, expected):
    drain = started(number=1, paused=("entry",), until=NOW + 500)
    assert next_turn(drain, AFTER_ENTRY, measured, NOW + 100) == expected


def test_after_the_deadline_the_hold_is_named_and_all_is_taken_back():
    drain = started(number=1, paused=("entry",), until=NOW + 500)
    tiers = [AFTER_ENTRY[0], replace(AFTER_ENTRY[1], hindered="waits for PostgreSQL")]
    turn = next_turn(drain, tiers, flowing(7), NOW + 501)
    assert turn == Fail(
        "it was not empty after 900 s: enrich has 7 records left, and reads 0 a second, and waits for "
        "PostgreSQL"
    )
    drain = drain.model_copy(update={"failed": turn.why})
    assert next_turn(drain, tiers, Measured(), NOW + 502) == Next(RESUME, ("entry",))
    drain = drain.model_copy(update={"paused": ()})
    turn = next_turn(drain, tiers, Measured(), NOW + 503)
    assert isinstance(turn, Returned)
    assert "enrich has 7 records left" in turn.sentence


@pytest.mark.parametrize(
    ("tiers", "why"),
    [
        ([now_of(HITS[0]), now_of(HITS[1])], "somebody resumed entry"),
        ([AFTER_ENTRY[0], now_of(HITS[1], given_up="boom")], "enrich was given up: boom"),
    ],
)
def test_what_cannot_get_empty_any_more_fails_before_the_deadline(tiers, why):
    drain = started(number=1, paused=("entry",), until=NOW + 500)
    assert next_turn(drain, tiers, flowing(0), NOW + 1) == Fail(why)


def test_a_tier_that_reads_from_outside_too_need_not_read_all_of_that():
    both = tier("enrich", "users hits", "enriched")
    measured = replace(flowing(900), ends={"hits/0": 5, "users/0": 905})
    flows = {"enrich": Flow(NOW + 100, 900, 3.0, {"hits/0": 5, "users/0": 5})}
    drain = started(number=1, paused=("entry",), until=NOW + 500)
    turn = next_turn(drain, [AFTER_ENTRY[0], now_of(both)], replace(measured, flows=flows), NOW + 100)
    assert turn == Next(DRAIN_TO_EMPTY, ("enrich",))


class Pipeline:
    """Tiers that process records at random, drivers and an audit that look now and then."""

    def __init__(self, specs, random, *, stuck=None):
        self.specs, self.random, self.stuck = specs, random, stuck
        self.written = {stream for spec in specs for stream in spec.outputs}
        streams = {stream for spec in specs for stream in (*spec.inputs, *spec.outputs)}
        self.ends = {f"{stream}/{number}": 0 for stream in streams for number in range(PARTITIONS)}
        self.read = {spec.name: dict.fromkeys(self._places(spec.inputs), 0) for spec in specs}
        self.rests, self.stopped_at, self.flows = dict.fromkeys(self.read, False), {}, {}
        self.now, self.look, self.seen, self.coming = NOW, None, {}, {}
        self.again = 30

    def _places(self, streams):
        return [place for place in self.ends if place.rpartition("/")[0] in streams]

    def step(self):
        self.now += 2.0
        for place in self.ends:
            if place.rpartition("/")[0] not in self.written:
                self.ends[place] += self.random.randrange(4)
        for spec in self.random.sample(self.specs, len(self.specs)):
            if not self.rests[spec.name] and spec.name != self.stuck:
                self.process(spec)
                if self.random.random() < 0.6:
                    lag = sum(self.ends[place] - at for place, at in self.read[spec.name].items())
                    self.flows[spec.name] = Flow(self.now, lag, 1.0, dict(self.read[spec.name]))
        if self.random.random() < 0.3:  # one look of the audit ends, and the next begins
            self.look, self.seen, self.coming = self.now, self.coming, dict(self.ends)

    def process(self, spec):
        for place, at in self.read[spec.name].items():
            count = min(self.ends[place] - at, self.random.randrange(9))
            self.read[spec.name][place] += count
            for stream in spec.outputs if count else ():
                if stream == "again":  # a record leads back a few times at most
                    count = min(count, self.again, 2)
                    self.again -= count
                self.ends[f"{stream}/{self.random.randrange(PARTITIONS)}"] += count

    def apply(self, turn):
        for name in turn.tiers:
            spec = next(spec for spec in self.specs if spec.name == name)
            if turn.kind == DRAIN_TO_EMPTY and not self.rests[name] and name != self.stuck:
                self.process(spec)
            self.rests[name] = turn.kind == DRAIN_TO_EMPTY
            self.stopped_at[name] = self.now

    def tiers(self):
        return [
            TierNow(
                spec,
                asked=self.rests[spec.name],
                rests=self.rests[spec.name],
                positions=dict(self.read[spec.name]) if self.rests[spec.name] else {},
                stopped_at=self.stopped_at.get(spec.name, 0.0),
            )
            for spec in self.specs
        ]

    def measured(self):
        return Measured(ends=self.seen, look=self.look, flows=dict(self.flows))

    def in_flight(self):
        return sum(
            self.ends[place] - at
            for read in self.read.values()
            for place, at in read.items()
            if place.rpartition("/")[0] in self.written
        )

    def drain(self, deadline=1e6):
        """Drain as a caller does; return the last turn."""
        drain = started().model_copy(update={"deadline_seconds": deadline})
        for _ in range(2000):
            self.step()
            turn = next_turn(drain, self.tiers(), self.measured(), self.now)
            match turn:
                case Next():
                    self.check_order(turn, drain)
                    drain = self.carried_out(drain, turn)
                case Look():
                    drain = drain.model_copy(update={"looks": (*drain.looks, turn.at)})
                case Fail():
                    drain = drain.model_copy(update={"failed": turn.why})
                case Returned() | Empty():
                    return turn
        message = f"no end: {turn}"
        raise AssertionError(message)

    def carried_out(self, drain, turn):
        self.apply(turn)
        kept = tuple(name for name in drain.paused if name not in turn.tiers)
        paused = (*kept, *turn.tiers) if turn.kind == DRAIN_TO_EMPTY else kept
        return drain.model_copy(update={"number": drain.number + 1, "paused": paused, "looks": ()})

    def check_order(self, turn, drain):
        """No tier is paused while a tier before it, outside its circle, can still write to it."""
        if turn.kind == RESUME:
            return
        (group,) = [group for group in order(self.specs) if {*turn.tiers} <= {*group}] or [turn.tiers]
        for spec in self.specs:
            if spec.name in turn.tiers and drain.number:
                for other in self.specs:
                    feeds = not {*other.outputs}.isdisjoint(spec.inputs) and other.name not in group
                    assert self.rests[other.name] or not feeds


@st.composite
def pipelines(draw):
    """Return a pipeline of some sources and tiers after them, at times with a way back."""
    count = draw(st.integers(1, 5))
    specs = []
    for number in range(count):
        before = draw(st.sets(st.integers(0, number - 1), max_size=2)) if number else set()
        inputs = " ".join(f"s{each}" for each in sorted(before)) or f"raw{number}"
        specs.append(tier(f"t{number}", inputs, f"s{number}", distance=count - number))
    inner = [number for number, spec in enumerate(specs) if not spec.inputs[0].startswith("raw")]
    if inner and draw(st.booleans()):
        first = draw(st.sampled_from(inner))
        last = draw(st.sampled_from([number for number in inner if number >= first]))
        specs[first] = specs[first].model_copy(update={"inputs": (*specs[first].inputs, "again")})
        specs[last] = specs[last].model_copy(update={"outputs": (*specs[last].outputs, "again")})
    return specs


def is_refused(specs):
    try:
        refuse([now_of(spec) for spec in specs], Measured())
    except RefusedError:
        return True
    return False


@settings(max_examples=60)
@given(pipelines(), st.integers(0, 1_000_000))
def test_a_receipt_is_only_written_when_nothing_is_in_flight(specs, seed):
    pipeline = Pipeline(specs, Random(seed))  # noqa: S311 - a seeded simulation
    if is_refused(specs):
        return
    turn = pipeline.drain()
    assert isinstance(turn, Empty), turn
    assert pipeline.in_flight() == turn.receipt.in_flight == 0
    assert all(pipeline.rests.values())
    assert [each.tier for each in turn.receipt.tiers] == [name for group in order(specs) for name in group]
    for each in turn.receipt.tiers:
        assert sum(stream.read for stream in each.inputs) == sum(pipeline.read[each.tier].values())


@settings(max_examples=30)
@given(pipelines(), st.integers(0, 1_000_000), st.data())
def test_a_tier_that_stands_still_has_every_pause_taken_back(specs, seed, data):
    fed = [spec.name for spec in specs if not spec.inputs[0].startswith("raw")]
    if not fed or is_refused(specs):
        return
    pipeline = Pipeline(specs, Random(seed), stuck=data.draw(st.sampled_from(fed)))  # noqa: S311
    for _ in range(20):
        pipeline.step()
    turn = pipeline.drain(deadline=300.0)
    if isinstance(turn, Empty):  # no record ever came to it
        assert pipeline.in_flight() == 0
        return
    assert isinstance(turn, Returned)
    assert not any(pipeline.rests.values())


def resting(**more):
    positions = {"hits/0": 5, "enriched/0": 4}
    return [
        now_of(HITS[0], rests=True, positions={"raw/0": 6}),
        now_of(HITS[1], rests=True, positions={"hits/0": positions["hits/0"]}),
        now_of(HITS[2], rests=True, positions={"enriched/0": 4}, **more),
    ]


def audited(judged=4, **more):
    ends = {"raw/0": 9, "hits/0": 5, "enriched/0": 4, "hits.quarantine/0": 1, **more}
    audit = Audit(judged={"enriched/0": judged}, once=judged, lost=0, judges=True, verdict="balanced")
    return Measured(ends=ends, look=3.0, audits={"counts": audit}, sinks={"counts": 4})


PROVED = started(number=3, paused=("entry", "enrich", "counts"), looks=(1.0, 2.0, 3.0), until=NOW + 500)


def test_the_receipt_has_the_numbers_of_each_tier_and_stream():
    turn = next_turn(PROVED, resting(), audited(), NOW)
    assert isinstance(turn, Empty)
    entry, enrich, counts = turn.receipt.tiers
    assert [(each.stream, each.records, each.read, each.left) for each in entry.inputs] == [("raw", 9, 6, 3)]
    assert (entry.in_flight, entry.outputs) == (0, {"hits": 5})
    assert (enrich.quarantined, enrich.outputs, enrich.sink) == (1, {"enriched": 4}, None)
    assert (counts.sink, counts.once, counts.verdict) == (4, 4, "balanced")
    assert turn.sentence == "0 records in flight; paused: entry, enrich, counts; waiting outside: 3 in raw"


def test_the_audit_has_to_look_twice_and_to_find_every_record():
    assert next_turn(PROVED.model_copy(update={"looks": (1.0,)}), resting(), audited(), NOW) == Look(3.0)
    seen = PROVED.model_copy(update={"looks": (1.0, 3.0)})
    assert next_turn(seen, resting(), audited(), NOW) == Wait("the audit looks where the streams end")
    assert next_turn(PROVED, resting(), audited(judged=1), NOW) == Wait(
        "the audit has not found the last 3 records of counts"
    )


def test_a_tier_that_was_paused_too_early_reads_on_with_those_after_it():
    measured = audited(**{"hits/0": 8})
    assert next_turn(PROVED, resting(), measured, NOW) == Next(RESUME, ("enrich", "counts"))
    others = PROVED.model_copy(update={"paused": ("entry", "counts")})
    assert next_turn(others, resting(), measured, NOW) == Fail(
        "3 records wait for enrich, which somebody else paused or stopped"
    )
