"""How many records a throttled gate takes after its release."""

from hypothesis import given
from hypothesis import strategies as st

from sluice.driver.engine.intake import LITTLE, ROUND_SECONDS, SILENT_SECONDS, Intake, portion

offsets = st.dictionaries(
    st.sampled_from([f"raw/{number}" for number in range(6)]),
    st.tuples(st.integers(0, 1000), st.integers(0, 1000)),
    min_size=1,
)


@given(offsets, st.integers(1, 3000))
def test_an_intake_is_as_large_as_allowed_and_starves_no_partition(ranges, most):
    begins = {name: first for name, (first, _) in ranges.items()}
    ends = {name: first + more for name, (first, more) in ranges.items()}
    until = portion(begins, ends, most)
    taken = {name: until[name] - begins[name] for name in begins}
    assert all(0 <= taken[name] <= ends[name] - begins[name] for name in begins)
    assert sum(taken.values()) == min(most, sum(ends.values()) - sum(begins.values()))


def test_a_throttled_gate_takes_nothing_while_a_controller_leads():
    intake = Intake(1000)
    assert all(intake.allowance(float(now), silent=1.0, held=True) == 0 for now in range(0, 100_000, 10))


def test_without_a_controller_a_few_records_are_taken_at_intervals():
    intake, taken = Intake(1000), 0
    for second in range(3600):
        allowed = intake.allowance(float(second), silent=float(second), held=True)
        if allowed:
            intake.took(float(second), allowed)
        taken += allowed
    times = 3600 / SILENT_SECONDS - 1
    assert taken == times * 1000 * LITTLE


def taken(intake: Intake, begun: float, seconds: float) -> int:
    """Take all allowed records ten times a second, and return their number."""
    total = 0
    for tenth in range(int(seconds * 10)):
        now = begun + tenth / 10
        allowed = intake.allowance(now, silent=0.0, held=False)
        assert allowed <= intake.most
        intake.took(now, allowed)
        total += allowed
    return total


def test_each_round_takes_a_batch_more_until_it_is_held_again():
    intake = Intake(1000)
    assert [taken(intake, number * ROUND_SECONDS, ROUND_SECONDS) for number in range(4)] == [
        1000,
        2000,
        3000,
        4000,
    ]
    assert intake.allowance(20.0, silent=0.0, held=True) == 0
    assert taken(intake, 20.1, ROUND_SECONDS) == 1000, "the rounds start again at once, with the first size"


@given(st.lists(st.tuples(st.booleans(), st.floats(0.1, 30.0)), max_size=40))
def test_after_a_hold_at_most_one_batch_is_taken_before_the_next_report(changes):
    intake, now = Intake(1000), 0.0
    for held, seconds in changes:
        if held:
            assert intake.allowance(now, silent=0.0, held=True) == 0
            assert taken(intake, now, min(seconds, ROUND_SECONDS - 0.1)) <= 1000
        now += seconds
