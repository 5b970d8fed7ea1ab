"""What a leader makes of nodes that cannot be read, over the channel in memory."""

from types import SimpleNamespace

import pytest
from simulation.damage import Damaged
from simulation.world import RULES, World

from ops.controller.leader import Controller
from ops.model import paths
from ops.model.status import ControllerStatus


class Open(Damaged):
    """As a leader sees the channel."""

    session = 1
    connected = True
    kazoo = SimpleNamespace(Lock=lambda *_: None)

    def on_wake(self, _waker):
        """Nobody is woken."""


@pytest.fixture
def world():
    running = World(channel=Open())
    running.want()
    running.settle()
    return running


def leader(world):
    controller = Controller(world.channel, "c1", lambda: RULES)
    return controller, controller._take_office(1)


@pytest.mark.parametrize("path", [paths.wanted("counts"), paths.tier("counts"), paths.owner("counts"), paths.assignment("h1")])
def test_a_new_leader_decides_nothing_by_what_it_cannot_read_and_says_which_node_it_is(world, path):
    world.channel.damage(path)
    before = {name: world.assigned(name) for name in world.agents}
    controller, term = leader(world)
    assert not controller._pass(term)
    said = world.channel.read(paths.CONTROLLER_STATUS, ControllerStatus).value.sentence
    assert said.startswith(f"decides nothing: {path} cannot be read")
    assert {name: world.assigned(name) for name in world.agents} == before
    assert not world.owner("counts").stopped


def test_what_a_process_says_of_itself_and_history_hold_nobody_up(world):
    world.channel.damage(paths.report("counts", 1))
    world.channel.damage(paths.observed("h1"))
    world.channel.damage(paths.change("of-a-kind-that-a-newer-version-knows"))
    controller, term = leader(world)
    controller._pass(term)
    assert "decides nothing" not in world.channel.read(paths.CONTROLLER_STATUS, ControllerStatus).value.sentence


def test_a_leader_that_has_read_a_node_before_goes_by_what_it_was(world):
    controller, term = leader(world)
    controller._pass(term)
    world.channel.damage(paths.wanted("counts"))
    controller._pass(term)
    assert "decides nothing" not in world.channel.read(paths.CONTROLLER_STATUS, ControllerStatus).value.sentence
    assert not world.owner("counts").stopped
