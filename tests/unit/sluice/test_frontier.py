"""A tier is never called complete up to a time before which an unprocessed record arrived."""

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from sluice.api.declarations import Stream, Tier
from sluice.audit.__main__ import Auditor
from sluice.audit.frontier import MAX_MARKS, Frontier
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
            frontier.passed(processed)
            frontier.mark(clock, {name: len(times) for name, times in arrived.items()})
        missing = [moment for name, times in arrived.items() for moment in times[processed[name] :]]
        assert frontier.complete is None or all(moment >= frontier.complete for moment in missing)
    at = clock + 1
    frontier.mark(at, {name: len(times) for name, times in arrived.items()})
    frontier.passed({name: len(times) for name, times in arrived.items()})
    assert frontier.complete == at, "a tier that processed all records is complete"


def test_a_lagging_tier_keeps_a_limited_number_of_marks() -> None:
    frontier = Frontier()
    for moment in range(10 * MAX_MARKS):
        frontier.mark(moment, {"in/0": moment})
    frontier.passed({"in/0": 5 * MAX_MARKS})
    assert frontier.complete == MAX_MARKS - 1
    frontier.mark(20 * MAX_MARKS, {"in/0": 10 * MAX_MARKS})
    frontier.passed({"in/0": 10 * MAX_MARKS})
    assert frontier.complete == 20 * MAX_MARKS


def complete_times(*tiers: Tier) -> dict[str, float | None]:
    """Return up to when each tier is complete after it has processed all records, with no further
    arrivals.
    """
    auditor = Auditor.__new__(Auditor)
    saved: dict[str, float] = {}
    auditor._tiers, auditor._frontiers = tiers, {}
    auditor._writers = {stream.name: tier.name for tier in tiers for stream in tier.outputs}
    auditor._book = SimpleNamespace(complete=saved.get, save_complete=saved.__setitem__)
    auditor._audits = {tier.name: SimpleNamespace(done=lambda: {"in/0": 1}) for tier in tiers}
    auditor._arriving = SimpleNamespace(bounds=lambda _streams: SimpleNamespace(ends={"in/0": 1}))
    for _ in range(2 * len(tiers)):
        for tier in tiers:
            auditor._advance(tier)
    return {tier.name: saved.get(tier.name) for tier in tiers}


def tier(name: str, inputs: tuple[Stream, ...], *outputs: Stream) -> Tier:
    return Tier(name, Kind.PROCESSING, inputs=inputs, transform=lambda records: records, outputs=outputs)


def test_tiers_of_a_loop_and_after_it_have_no_complete_time() -> None:
    hits, back, on, done = (
        Stream("hits"),
        Stream("back", "id string", rounds=3),
        Stream("on", "id string"),
        Stream("done", "id string"),
    )
    times = complete_times(
        tier("before", (hits,), Stream("clean", "id string")),
        tier("again", (Stream("clean", "id string"), back), on),
        tier("turns", (on,), back, done),
        tier("after", (done,), Stream("out", "id string")),
        tier("aside", (hits,), Stream("other", "id string")),
    )
    assert {name for name, moment in times.items() if moment is not None} == {"before", "aside"}
