"""The fence: what each incarnation derives from the owner record."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_ops.model.incarnation import (
    TRANSITIONS,
    Directive,
    IllegalTransitionError,
    OwnerRecord,
    Phase,
    State,
    advance,
    directive,
)

records = st.builds(
    OwnerRecord,
    owner=st.integers(1, 4),
    next=st.none() | st.integers(5, 6),
    phase=st.sampled_from(Phase),
    paused=st.booleans(),
    stopped=st.booleans(),
).filter(lambda record: record.next is not None or record.phase is Phase.STEADY)


@given(records)
def test_two_incarnations_run_only_during_the_cut(record):
    directives = [directive(record, number) for number in range(1, 8)]
    assert directives.count(Directive.RUN) <= (2 if record.phase is Phase.CUT else 1)


@given(records)
def test_every_incarnation_older_than_the_owner_exits(record):
    assert all(directive(record, number) is Directive.EXIT for number in range(1, record.owner))


@given(records)
def test_an_incarnation_runs_unless_the_tier_is_paused_or_stopped(record):
    directives = [directive(record, number) for number in range(1, 8)]
    assert (Directive.RUN in directives) is not (record.paused or record.stopped)


def test_during_the_cut_the_next_incarnation_runs_beside_the_owner():
    record = OwnerRecord(owner=1, next=2, phase=Phase.CUT)
    assert directive(record, 1) is Directive.RUN
    assert directive(record, 2) is Directive.RUN


@given(st.sampled_from(State), st.sampled_from(State))
def test_a_state_changes_only_as_the_table_says(before, after):
    if before is after or after in TRANSITIONS[before]:
        assert advance(before, after) is after
    else:
        with pytest.raises(IllegalTransitionError, match=f"cannot go from {before} to {after}"):
            advance(before, after)
