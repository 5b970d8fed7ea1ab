"""A person's change of a node: made of the newest value, and in the trail once."""

import pytest
from simulation.memory import MemoryChannel

from sluice_ops.channel import ConflictError, trail_queue
from sluice_ops.model import paths
from sluice_ops.model.scaler import Mode, ScalerModes
from sluice_ops.operations.recorded_changes import TRIES, change_node
from sluice_ops.operations.scaling import set_mode

PATH = paths.SCALER_MODES


class Overtaken(MemoryChannel):
    """A channel in which somebody else writes the node before each of the first writes."""

    def __init__(self, times):
        super().__init__()
        self.times = times
        self.put(PATH, ScalerModes())

    def multi(self, writes):
        if self.times:
            self.times -= 1
            self.put(PATH, ScalerModes(modes={"entry": Mode.OFF}, at=float(self.times)))
        super().multi(writes)


def trail(channel):
    return [(item.entry.by, item.entry.layer, item.entry.what) for item in trail_queue.queued(channel)]


def act(before):
    return ScalerModes(modes={**before.modes, "enrich": Mode.ACT})


def change(channel):
    return change_node(channel, PATH, ScalerModes, act, by="cli:anna", what="scaler act enrich")


def test_an_overtaken_change_is_made_again_of_the_newest_value():
    channel = Overtaken(TRIES - 1)
    assert change(channel).modes == {"entry": Mode.OFF, "enrich": Mode.ACT}
    assert trail(channel) == [("cli:anna", "person", "scaler act enrich")]


def test_a_change_that_is_overtaken_again_and_again_is_given_up():
    channel = Overtaken(TRIES)
    with pytest.raises(ConflictError, match=f"{PATH} could not be written: it changed {TRIES} times"):
        change(channel)
    assert trail(channel) == []


def test_a_change_to_the_same_value_leaves_no_trace():
    channel = Overtaken(0)
    change(channel)
    version = channel.version(PATH)
    change(channel)
    assert (channel.version(PATH), len(trail(channel))) == (version, 1)


def test_a_mode_of_the_scaler_keeps_those_of_other_tiers():
    channel = MemoryChannel()
    channel.put(PATH, ScalerModes(modes={"entry": Mode.OFF}))
    set_mode(channel, "enrich", Mode.ACT, "cli:anna")
    modes = channel.read(PATH, ScalerModes).value
    assert (modes.modes, modes.by) == ({"entry": Mode.OFF, "enrich": Mode.ACT}, "cli:anna")
    assert trail(channel) == [("cli:anna", "person", "scaler act enrich")]


def test_a_mode_of_the_scaler_waits_for_a_controller():
    with pytest.raises(ConflictError, match="is a controller running"):
        set_mode(MemoryChannel(), "enrich", Mode.ACT, "cli:anna")
