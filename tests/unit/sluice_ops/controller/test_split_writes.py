"""A pass that is too large for one request: a portion keeps the writes of a tier together, and the
pass may end after any portion.
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
from sluice_ops.snapshot.view import View, read_view

pytestmark = pytest.mark.timeout(240)


def size_of(portion):
    return sum(len(write.path) + len(write.data) + 100 for write in portion)


@settings(max_examples=30)
@given(st.integers(4, 40), st.integers(1, 60_000))
def test_portions_hold_each_write_once_and_keep_to_the_limit(hosts, most):
    view, moment = unplanned(Size(hosts, hosts * 8))
    writes = decide(view, moment).writes
    portions = split_writes(writes, view, most)
    assert sorted(write.path for portion in portions for write in portion) == sorted(
        write.path for write in writes
    )
    for portion in portions:
        tiers = {paths.tier_of(write.path) for write in portion}
        assert size_of(portion) <= most or len(tiers) == 1, (
            "only the writes of a single tier may exceed the limit"
        )
    by_tier = [{paths.tier_of(write.path) for write in portion} - {None} for portion in portions]
    for name in view.tiers:
        assert sum(name in tiers for tiers in by_tier) == 1, "a tier is written in one portion"
    first_assignment = next(
        number
        for number, portion in enumerate(portions)
        if any(isinstance(write.value, Assignment) for write in portion)
    )
    assert not any(by_tier[first_assignment + 1 :]), (
        "tiers are written before the assignments that follow from them"
    )


def test_a_pass_of_usual_size_is_one_request():
    view, moment = unplanned(Size(40, 320))
    assert len(split_writes(decide(view, moment).writes, view)) == 1
    assert split_writes((), View()) == []


class Dying(World):
    """A world whose controller dies after the first portion of each pass, so each pass has a new
    controller.
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
def test_controllers_that_die_after_each_portion_reach_the_end(most):
    world = Dying()
    world.most = most
    world.bring_up()
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


def test_assignments_that_remove_units_are_written_before_others():
    world = World()
    world.bring_up()
    view = read_view(world.channel)
    full = next(name for name, host in view.hosts.items() if host.assignment.units)
    empty = Assignment(epoch=9)
    more = view.hosts[full].assignment
    other = next(name for name in view.hosts if name != full)
    writes = [Write(paths.assignment(other), more, 1), Write(paths.assignment(full), empty, 1)]
    assert [write.path for portion in split_writes(writes, view, 1) for write in portion] == [
        paths.assignment(full),
        paths.assignment(other),
    ]
