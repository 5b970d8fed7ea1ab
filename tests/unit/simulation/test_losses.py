"""How soon the controller answers a loss, computed from the published assignments."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_ops.local.simulation.losses import AssignedUnit, Board, Loss, Published, answered_at, percentile

A, B, DRIVER = (
    AssignedUnit("slot-t-1-0", "t", 1),
    AssignedUnit("slot-t-1-1", "t", 1),
    AssignedUnit("driver-t-1", "t", 1),
)


def test_a_loss_is_answered_when_its_last_slot_is_published_elsewhere():
    board = Board()
    for at, host, units in [
        (1.0, "h1", {A, B}),
        (2.0, "h2", set()),
        (20.0, "h2", {A}),
        (21.0, "h3", {B}),
        (22.0, "h3", {B}),
        (23.0, "h1", set()),
    ]:
        board.add(Published(host, at, frozenset(units)))
    loss = Loss("h1", 10.0, frozenset({A, B}))
    assert answered_at(loss, board.appeared) == 21.0
    assert answered_at(loss, [appearance for appearance in board.appeared if appearance[0] < 21]) is None
    assert board.slots() == 2


def test_incarnations_before_the_loss_or_on_the_lost_host_do_not_count():
    assert answered_at(Loss("h1", 10.0, frozenset({A})), [(9.0, "h2", A), (11.0, "h1", A)]) is None


def test_a_lost_driver_is_answered_when_all_its_tiers_are_published_again():
    following = [(30.0 + number, "h2", AssignedUnit(f"slot-t-2-{number}", "t", 2)) for number in range(3)]
    later = [
        (50.0, "h3", AssignedUnit("slot-t-3-0", "t", 3)),
        (51.0, "h3", AssignedUnit("slot-t-2-0", "t", 2)),
    ]
    assert answered_at(Loss("h1", 10.0, frozenset({DRIVER, A})), [*following, *later]) == 32.0


def test_a_host_lost_while_its_tier_restarts_is_answered_by_that_restart():
    begun = [
        (9.0, "h2", AssignedUnit("slot-t-2-0", "t", 2)),
        (11.0, "h3", AssignedUnit("slot-t-2-1", "t", 2)),
        (70.0, "h4", AssignedUnit("slot-t-2-0", "t", 2)),
    ]
    assert answered_at(Loss("h1", 10.0, frozenset({A})), begun) == 11.0
    assert answered_at(Loss("h1", 12.0, frozenset({A})), begun) == 12.0


def test_a_loss_is_one_of_a_driver_when_the_host_held_one():
    assert Loss("h1", 10.0, frozenset({DRIVER, A})).of_driver
    assert not Loss("h1", 10.0, frozenset({A, B})).of_driver
    assert not Loss("h1", 10.0, frozenset()).of_driver


def test_a_host_that_held_nothing_needs_no_answer():
    assert answered_at(Loss("h1", 10.0, frozenset()), []) == 10.0


@given(st.lists(st.floats(0, 100), min_size=1), st.floats(0.01, 1))
def test_a_percentile_is_a_value_that_the_share_does_not_exceed(values, share):
    result = percentile(values, share)
    assert result in values
    assert sum(value <= result for value in values) >= share * len(values)
    assert sum(value < result for value in values) < max(1, share * len(values))


@pytest.mark.parametrize(("share", "expected"), [(0.5, 50), (0.99, 99), (1.0, 100)])
def test_percentiles_of_a_hundred(share, expected):
    assert percentile(range(1, 101), share) == expected
