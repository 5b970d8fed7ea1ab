"""A tier is never called complete up to a time before which something arrived that has not gone through."""

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
def test_nothing_that_arrived_before_it_is_missing(steps: list[tuple[str, str]]) -> None:
    frontier, clock = Frontier(), 0.0
    arrived: dict[str, list[float]] = {partition: [] for partition in PARTITIONS}
    done = dict.fromkeys(PARTITIONS, 0)
    for step, partition in steps:
        clock += 1
        if step == "arrives":
            arrived[partition].append(clock)
        elif step == "goes":
            done[partition] = min(done[partition] + 1, len(arrived[partition]))
        else:
            frontier.passed(done)
            frontier.mark(clock, {name: len(times) for name, times in arrived.items()})
        missing = [moment for name, times in arrived.items() for moment in times[done[name] :]]
        assert frontier.complete is None or all(moment >= frontier.complete for moment in missing)
    at = clock + 1
    frontier.mark(at, {name: len(times) for name, times in arrived.items()})
    frontier.passed({name: len(times) for name, times in arrived.items()})
    assert frontier.complete == at, "what has everything is complete"


def test_a_tier_that_is_behind_collects_no_end_of_marks() -> None:
    frontier = Frontier()
    for moment in range(10 * MAX_MARKS):
        frontier.mark(moment, {"in/0": moment})
    frontier.passed({"in/0": 5 * MAX_MARKS})
    assert frontier.complete == MAX_MARKS - 1
    frontier.mark(20 * MAX_MARKS, {"in/0": 10 * MAX_MARKS})
    frontier.passed({"in/0": 10 * MAX_MARKS})
    assert frontier.complete == 20 * MAX_MARKS


def complete(*tiers: Tier) -> dict[str, float | None]:
    """Return up to when each tier is complete once all that has come has gone through it, and never more comes."""
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


def test_no_record_counts_as_through_while_records_may_still_loop() -> None:
    hits, back, on, done = (
        Stream("hits"),
        Stream("back", "id string", rounds=3),
        Stream("on", "id string"),
        Stream("done", "id string"),
    )
    found = complete(
        tier("before", (hits,), Stream("clean", "id string")),
        tier("again", (Stream("clean", "id string"), back), on),
        tier("turns", (on,), back, done),
        tier("after", (done,), Stream("out", "id string")),
        tier("aside", (hits,), Stream("other", "id string")),
    )
    assert {name for name, moment in found.items() if moment is not None} == {"before", "aside"}
