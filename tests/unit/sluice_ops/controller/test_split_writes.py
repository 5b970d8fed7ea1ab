"""A pass that is too large for one request: its portions keep together what belongs together, and
may end after any of them.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulation.world import World

from sluice_ops.channel import Write
from sluice_ops.controller.decide import decide
from sluice_ops.controller.split_writes import split_writes
from sluice_ops.local.simulation.cluster import Size, unplanned
from sluice_ops.model import paths
from sluice_ops.model.assignment import Assignment
from sluice_ops.model.incarnation import State
from sluice_ops.snapshot.view import View, look

pytestmark = pytest.mark.timeout(240)


def size_of(portion):
    return sum(len(write.path) + len(write.data) + 100 for write in portion)


@settings(max_examples=30)
@given(st.integers(4, 40), st.integers(1, 60_000))
def test_portions_hold_all_of_it_once_and_are_no_larger_than_they_may_be(hosts, most):
    view, moment = unplanned(Size(hosts, hosts * 8))
    writes = decide(view, moment).writes
    found = split_writes(writes, view, most)
    assert sorted(write.path for portion in found for write in portion) == sorted(
        write.path for write in writes
    )
    for portion in found:
        tiers = {paths.tier_of(write.path) for write in portion}
        assert size_of(portion) <= most or len(tiers) == 1, "only what belongs together is larger"
    by_tier = [{paths.tier_of(write.path) for write in portion} - {None} for portion in found]
    for name in view.tiers:
        assert sum(name in tiers for tiers in by_tier) == 1, "a tier is written whole"
    first_assignment = next(
        number
        for number, portion in enumerate(found)
        if any(isinstance(write.value, Assignment) for write in portion)
    )
    assert not any(by_tier[first_assignment + 1 :]), "the tiers come before what follows from them"


def test_a_pass_of_usual_size_is_one_request():
    view, moment = unplanned(Size(40, 320))
    assert len(split_writes(decide(view, moment).writes, view)) == 1
    assert split_writes((), View()) == []


class Dying(World):
    """A world whose controller dies after each first portion of a pass: each pass is another
    controller's.
    """

    most = 300

    def controller_pass(self):
        view, decision = self.decide()
        self.sentences.append(decision.sentence)
        first, *_ = split_writes(decision.writes, view, self.most) or [[]]
        if first:
            self.channel.multi(first)
        self.check()
        return bool(first)


@pytest.mark.parametrize("most", [1, 300, 2000])
def test_a_controller_that_dies_after_each_portion_still_gets_there(most):
    world = Dying()
    world.most = most
    world.want()
    world.settle()
    runbook = world.begin("d1", kind="drain", host=world.placement("enrich").driver)
    world.until(lambda: runbook.ended, 400)
    assert runbook.ok, runbook.results
    lost = world.placement("counts").driver
    world.agents[lost].die()
    world.until(lambda: world.placement("counts").driver != lost, 400)
    world.agents[lost].register()
    world.settle()
    world.check_settled()
    assert {world.state(name) for name in world.specs} == {State.RUNNING}


def test_what_takes_units_away_is_written_before_what_adds_some():
    world = World()
    world.want()
    world.settle()
    view = look(world.channel)
    full = next(name for name, host in view.hosts.items() if host.assignment.units)
    empty = Assignment(epoch=9)
    more = view.hosts[full].assignment
    other = next(name for name in view.hosts if name != full)
    writes = [Write(paths.assignment(other), more, 1), Write(paths.assignment(full), empty, 1)]
    assert [write.path for portion in split_writes(writes, view, 1) for write in portion] == [
        paths.assignment(full),
        paths.assignment(other),
    ]
