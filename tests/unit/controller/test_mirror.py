"""The mirror over a channel in memory: what it keeps, and what it forgets."""

from simulation.damage import Damaged
from simulation.memory import MemoryChannel

from ops.controller.mirror import Mirror
from ops.model import paths
from ops.model.incarnation import TierWanted


def wanted(number):
    return paths.wanted(f"t{number}")


def test_a_node_that_no_longer_parses_keeps_its_last_good_value_and_one_that_never_did_is_named():
    channel = Damaged()
    mirror = Mirror(channel)
    channel.put(wanted(1), TierWanted(running=True))
    assert mirror.read(wanted(1), TierWanted).value.running
    channel.damage(wanted(1))
    channel.damage(wanted(2))
    assert mirror.read(wanted(1), TierWanted).value.running
    assert mirror.read(wanted(2), TierWanted) is None
    assert mirror.unreadable() == [wanted(2)]
    channel.delete(wanted(2))
    assert mirror.unreadable() == []


def test_what_a_watch_has_missed_is_read_anew_when_it_is_healed():
    channel = MemoryChannel()
    channel.on_change = lambda _: None
    mirror = Mirror(channel)
    channel.put(wanted(1), TierWanted())
    assert not mirror.read(wanted(1), TierWanted).value.running
    channel.put(wanted(1), TierWanted(running=True))
    assert not mirror.read(wanted(1), TierWanted).value.running, "nobody has told it"
    mirror.heal(10)
    assert mirror.read(wanted(1), TierWanted).value.running


def test_what_was_deleted_is_forgotten_and_what_is_there_is_not():
    channel = Damaged()
    mirror = Mirror(channel)
    for number in range(20):
        channel.put(wanted(number), TierWanted(attempt=number))

    def look():
        return mirror.read_many([wanted(number) for number in range(20) if channel.exists(wanted(number))], TierWanted)

    look()
    for number in range(10):
        channel.delete(wanted(number))
    channel.damage(wanted(19))
    look()
    mirror.forget()
    assert len(look()) == 10
    assert set(mirror._good) == {wanted(number) for number in range(10, 20)}
