"""How much a gate lets in that was held back."""

from hypothesis import given
from hypothesis import strategies as st

from pipeline.driver.intake import LITTLE, SILENT_SECONDS, Intake, portion

offsets = st.dictionaries(
    st.sampled_from([f"raw/{number}" for number in range(6)]), st.tuples(st.integers(0, 1000), st.integers(0, 1000)), min_size=1
)


@given(offsets, st.integers(1, 3000))
def test_a_portion_is_as_large_as_it_may_be_and_leaves_no_partition_behind_for_ever(found, most):
    begins = {name: first for name, (first, _) in found.items()}
    ends = {name: first + more for name, (first, more) in found.items()}
    until = portion(begins, ends, most)
    taken = {name: until[name] - begins[name] for name in begins}
    assert all(0 <= taken[name] <= ends[name] - begins[name] for name in begins)
    assert sum(taken.values()) == min(most, sum(ends.values()) - sum(begins.values()))


def test_nothing_is_let_in_while_it_is_held_and_somebody_decides():
    intake = Intake(1000, 2.0)
    assert all(intake.allowance(now, silent=1.0, held=True) == 0 for now in range(0, 100_000, 10))


def test_without_anybody_who_decides_a_little_is_let_in_now_and_then():
    intake, taken = Intake(1000, 2.0), 0
    for second in range(3600):
        allowed = intake.allowance(float(second), silent=float(second), held=True)
        if allowed:
            intake.took(float(second))
        taken += allowed
    times = 3600 / SILENT_SECONDS - 1
    assert taken == times * 1000 * LITTLE


def test_once_it_is_let_go_a_whole_batch_is_taken_at_each_interval():
    intake = Intake(1000, 2.0)
    assert intake.allowance(0.0, silent=0.0, held=False) == 1000
    intake.took(0.0)
    assert intake.allowance(1.9, silent=0.0, held=False) == 0
    assert intake.allowance(2.0, silent=0.0, held=False) == 1000
