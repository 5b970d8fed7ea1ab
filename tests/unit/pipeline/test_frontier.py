"""A tier is never called complete up to a time before which something arrived that has not gone through."""

from hypothesis import given
from hypothesis import strategies as st

from pipeline.audit.frontier import MOST_MARKS, Frontier

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
    for moment in range(10 * MOST_MARKS):
        frontier.mark(moment, {"in/0": moment})
    frontier.passed({"in/0": 5 * MOST_MARKS})
    assert frontier.complete == MOST_MARKS - 1
    frontier.mark(20 * MOST_MARKS, {"in/0": 10 * MOST_MARKS})
    frontier.passed({"in/0": 10 * MOST_MARKS})
    assert frontier.complete == 20 * MOST_MARKS
