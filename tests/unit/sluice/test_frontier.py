"""A tier is never called complete up to a time before which an unprocessed record arrived."""

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from sluice.api.declarations import State, Stream, Tier
from sluice.audit.__main__ import Auditor
from sluice.audit.frontier import MAX_MARKS, Frontier, loops
from sluice.sinks.table import Latest
from sluice_ops.model.tier import Kind

PARTITIONS = ("in/0", "in/1")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("arrives"), st.sampled_from(PARTITIONS)),
        st.tuples(st.just("goes"), st.sampled_from(PARTITIONS)),
        st.tuples(st.just("looks"), st.just("")),
    ),
    max_size=80,
)


@given(steps=STEPS)
def test_no_record_from_before_the_complete_time_is_missing(steps: list[tuple[str, str]]) -> None:
    frontier, clock = Frontier(), 0.0
    arrived: dict[str, list[float]] = {partition: [] for partition in PARTITIONS}
    processed = dict.fromkeys(PARTITIONS, 0)
    for step, partition in steps:
        clock += 1
        if step == "arrives":
            arrived[partition].append(clock)
        elif step == "goes":
            processed[partition] = min(processed[partition] + 1, len(arrived[partition]))
        else:
            ends = {name: len(times) for name, times in arrived.items()}
            frontier.passed(processed, ends)
            frontier.mark(clock, ends)
        missing = [moment for name, times in arrived.items() for moment in times[processed[name] :]]
        assert frontier.complete is None or all(moment >= frontier.complete for moment in missing)
    at, ends = clock + 1, {name: len(times) for name, times in arrived.items()}
    frontier.mark(at, ends)
    frontier.passed(ends, ends)
    assert frontier.complete == at, "a tier that processed all records is complete"


def test_a_lagging_tier_keeps_a_limited_number_of_marks() -> None:
    frontier = Frontier()
    for moment in range(10 * MAX_MARKS):
        frontier.mark(moment, {"in/0": moment})
    frontier.passed({"in/0": 5 * MAX_MARKS}, {})
    assert frontier.complete == MAX_MARKS - 1
    frontier.mark(20 * MAX_MARKS, {"in/0": 10 * MAX_MARKS})
    frontier.passed({"in/0": 10 * MAX_MARKS}, {})
    assert frontier.complete == 20 * MAX_MARKS


class Turning:
    """Records that go through a loop of `length` tiers, some of them again by the stream `back`."""

    def __init__(self, length: int, rounds: int) -> None:
        (self.loop,) = loops(chain_with_way_back([f"t{number}" for number in range(length)], rounds))
        self.frontier, self.clock = Frontier(turns=self.loop.turns), 0.0
        self.inputs = ["in", *(f"s{number}" for number in range(1, length)), "back"]
        self._length, self._rounds = length, rounds
        self._written: dict[str, list[tuple[float, int]]] = {name: [] for name in self.inputs}
        self._processed = dict.fromkeys(self.inputs, 0)

    def arrive(self) -> None:
        self._written["in"].append((self.clock, 0))

    def go(self, name: str, *, back: bool) -> None:
        """Process the next record of an input; the last tier sends it `back`, if it may."""
        if self._processed[name] == len(self._written[name]):
            return
        arrived, taken = self._written[name][self._processed[name]]
        self._processed[name] += 1
        reader = 0 if name in {"in", "back"} else int(name[1:])
        if reader + 1 < self._length:
            self._written[f"s{reader + 1}"].append((arrived, taken))
        elif taken < self._rounds and back:
            self._written["back"].append((arrived, taken + 1))

    def look(self) -> None:
        done, ends = dict(self._processed), {name: len(records) for name, records in self._written.items()}
        self.frontier.passed(done, ends)
        self.frontier.mark(self.clock, ends)

    def waiting(self) -> list[float]:
        """Return when the records arrived that the loop has not processed."""
        return [at for name in self.inputs for at, _ in self._written[name][self._processed[name] :]]


@given(data=st.data(), rounds=st.integers(1, 3), length=st.integers(1, 3))
def test_no_record_from_before_the_time_is_in_a_loop(data: st.DataObject, rounds: int, length: int) -> None:
    turning = Turning(length, rounds)
    steps = st.lists(st.sampled_from(["arrives", "looks", *turning.inputs]), max_size=60)
    for step in data.draw(steps):
        turning.clock += 1
        if step == "arrives":
            turning.arrive()
        elif step == "looks":
            turning.look()
        else:
            turning.go(step, back=data.draw(st.booleans()))
        complete = turning.frontier.complete
        assert complete is None or all(arrived >= complete for arrived in turning.waiting())
    last = turning.clock
    turning.look()
    while turning.waiting():
        for name in turning.inputs:
            turning.go(name, back=True)
    for _ in range(turning.loop.turns):
        turning.look()
    assert turning.frontier.complete == last, "a loop that has processed all records is complete"


def chain_with_way_back(names: list[str], rounds: int) -> list[Tier]:
    steps = [Stream(f"s{number}", "id string") for number in range(1, len(names))]
    back = Stream("back", "id string", rounds=rounds)
    reads = [(Stream("in"), back), *((step,) for step in steps)]
    return [tier(name, read, out) for name, read, out in zip(names, reads, [*steps, back], strict=True)]


def complete_times(*tiers: Tier) -> dict[str, float | None]:
    """Return up to when each tier is complete after it has processed all records, with no further
    arrivals.
    """
    auditor = Auditor.__new__(Auditor)
    saved: dict[str, float] = {}
    auditor._loops, auditor._frontiers = loops(tiers), {}
    auditor._writers = {stream.name: tier.name for tier in tiers for stream in tier.outputs}
    auditor._book = SimpleNamespace(
        complete=saved.get, save_complete=lambda tier, moment, _: saved.update({tier: moment})
    )
    auditor._audits = {tier.name: SimpleNamespace(done=lambda: {"in/0": 1}) for tier in tiers}
    auditor._arriving = SimpleNamespace(bounds=lambda _streams: SimpleNamespace(ends={"in/0": 1}))
    for _ in range(sum(loop.turns + 1 for loop in auditor._loops)):
        for loop in auditor._loops:
            auditor._try_to_advance(loop)
    return {tier.name: saved.get(tier.name) for tier in tiers}


def tier(name: str, inputs: tuple[Stream, ...], *outputs: Stream, sink: Latest | None = None) -> Tier:
    return Tier(
        name,
        Kind.PROCESSING,
        inputs=inputs,
        transform=lambda records: records,
        outputs=outputs,
        sink=sink,
        state=None if sink is None else State(0),
    )


def looping(*between: Tier) -> tuple[Tier, ...]:
    """Return tiers around a loop of `again`, `between` and `turns`."""
    clean, back = Stream("clean", "id string"), Stream("back", "id string", rounds=3)
    on, done = Stream("on", "id string"), Stream("done", "id string")
    return (
        tier("before", (Stream("hits"),), clean),
        tier("again", (clean, back), Stream("first", "id string") if between else on),
        *between,
        tier("turns", (on,), back, done),
        tier("after", (done,), Stream("out", "id string")),
        tier("aside", (Stream("hits"),), Stream("other", "id string")),
    )


def test_a_loop_and_the_tiers_after_it_have_a_complete_time() -> None:
    tiers = looping()
    assert [(len(loop.tiers), loop.turns) for loop in loops(tiers)] == [(1, 1), (2, 8), (1, 1), (1, 1)]
    times = complete_times(*tiers)
    assert None not in times.values()
    assert times["again"] == times["turns"], "the tiers of a loop are complete together"


def test_after_a_loop_with_state_no_complete_time_is_known() -> None:
    table = Latest("seen", {"id": "text"}, key=("id",))
    times = complete_times(
        *looping(tier("counts", (Stream("first", "id string"),), Stream("on", "id string"), sink=table))
    )
    assert {name for name, moment in times.items() if moment is not None} == {"before", "aside"}
