"""The choice of spare workers, as properties of random incarnations."""

from hypothesis import given
from hypothesis import strategies as st

from sluice.driver.spark.spares import choose_spares
from sluice_ops.model.ids import UnitId

WORKERS = [UnitId(f"slot-counts-1-{number}") for number in range(12)]
ABLE = st.dictionaries(st.sampled_from(WORKERS), st.integers(0, 99), max_size=12).map(
    lambda chosen: {worker: f"{worker}/{executor}" for worker, executor in chosen.items()}
)
ACTIVE = st.integers(1, 12)


@st.composite
def situations(draw):
    able = draw(ABLE)
    at_work = draw(st.sets(st.sampled_from(sorted(able.values())))) if able else set()
    return able, at_work


@given(situations(), ACTIVE)
def test_as_many_work_as_should_or_all_that_can(situation, active):
    able, at_work = situation
    assert len(able) - len(choose_spares(able, active, at_work)) == min(active, len(able))


@given(situations())
def test_without_a_number_all_work(situation):
    assert choose_spares(situation[0], None, situation[1]) == frozenset()


@given(situations(), ACTIVE)
def test_no_worker_rests_while_one_begins_to_work(situation, active):
    able, at_work = situation
    spares = choose_spares(able, active, at_work)
    resting = {worker for worker in spares if able[worker] in at_work}
    beginning = {worker for worker in able.keys() - spares if able[worker] not in at_work}
    assert not (resting and beginning)


@given(situations(), ACTIVE)
def test_a_choice_stays_until_something_changes(situation, active):
    able, at_work = situation
    spares = choose_spares(able, active, at_work)
    working = {executor for worker, executor in able.items() if worker not in spares}
    assert choose_spares(able, active, working) == spares


@given(situations(), ACTIVE, st.data())
def test_a_lost_worker_is_replaced_and_comes_back_as_a_spare(situation, active, data):
    able, at_work = situation
    spares = choose_spares(able, active, at_work)
    if not spares:
        return
    lost = data.draw(st.sampled_from(sorted(able.keys() - spares)))
    working = {executor for worker, executor in able.items() if worker not in spares}
    left = {worker: executor for worker, executor in able.items() if worker != lost}
    after = choose_spares(left, active, working)
    assert len(left) - len(after) == active
    assert after < spares
    then = {executor for worker, executor in left.items() if worker not in after}
    assert choose_spares({**able, lost: "new"}, active, then) == after | {lost}


@given(situations(), ACTIVE)
def test_no_worker_at_work_rests_where_none_may(situation, active):
    able, at_work = situation
    spares = choose_spares(able, active, at_work, may_rest=False)
    assert not any(able[worker] in at_work for worker in spares)


def test_the_last_slots_are_the_first_spares():
    able = {worker: worker for worker in WORKERS}
    assert choose_spares(able, 10, set()) == {WORKERS[10], WORKERS[11]}
