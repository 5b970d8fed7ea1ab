"""The mirror of the channel, with the channel in memory: which values it keeps, and which it
forgets.
"""

from hypothesis import given
from hypothesis import strategies as st
from simulation.damaged_channel import DamagedChannel
from simulation.memory import MemoryChannel

from sluice_ops.model import paths
from sluice_ops.model.assignment import Assignment, HostFacts, HostRecord, Observed
from sluice_ops.model.incarnation import TierWanted
from sluice_ops.snapshot.mirror import Mirror
from sluice_ops.snapshot.view import read_view


def wanted(number):
    return paths.wanted(f"t{number}")


def test_an_unparsable_node_keeps_its_last_good_value_or_is_named():
    channel = DamagedChannel()
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


def test_a_change_that_a_watch_missed_is_read_again_later():
    channel = MemoryChannel()
    channel.on_change = lambda _: None
    mirror = Mirror(channel)
    channel.put(wanted(1), TierWanted())
    assert not mirror.read(wanted(1), TierWanted).value.running
    channel.put(wanted(1), TierWanted(running=True))
    assert not mirror.read(wanted(1), TierWanted).value.running, "no watch has reported the change"
    mirror.invalidate_oldest(10)
    assert mirror.read(wanted(1), TierWanted).value.running


def test_deleted_nodes_are_forgotten_and_existing_ones_are_not():
    channel = DamagedChannel()
    mirror = Mirror(channel)
    for number in range(20):
        channel.put(wanted(number), TierWanted(attempt=number))

    def read_wanted():
        return mirror.read_many(
            [wanted(number) for number in range(20) if channel.exists(wanted(number))], TierWanted
        )

    read_wanted()
    for number in range(10):
        channel.delete(wanted(number))
    channel.damage(wanted(19))
    read_wanted()
    mirror.forget_missing()
    assert len(read_wanted()) == 10
    assert set(mirror._last_good) == {wanted(number) for number in range(10, 20)}


HOSTS = ("h1", "h2", "h3")


def facts(host, cpu):
    return HostFacts(name=host, address="127.0.0.1", zone="onprem", cpu=cpu, memory=1024)


NODES = {
    paths.host: facts,
    paths.host_record: lambda _, number: HostRecord(since=number),
    paths.live: facts,
    paths.assignment: lambda _, number: Assignment(epoch=number),
    paths.observed: lambda _, number: Observed(epoch=number, agent_started=0, limits="none"),
}
CHANGES = st.lists(
    st.tuples(st.sampled_from(HOSTS), st.sampled_from(list(NODES)), st.none() | st.integers(1, 9)), max_size=4
)


@given(st.lists(CHANGES, max_size=6))
def test_a_look_with_kept_hosts_equals_a_look_that_reads_all(looks):
    channel = MemoryChannel()
    channel.on_change = lambda _: None
    mirror = Mirror(channel)
    for changes in looks:
        for host, path, number in changes:
            if number is None:
                channel.delete(path(host))
            elif path in {paths.host, paths.assignment, paths.observed} or channel.exists(paths.host(host)):
                channel.put(path(host), NODES[path](host, number))
            for changed_path in (path(host), path(host).rsplit("/", 1)[0]):
                mirror.invalidate(changed_path)
        mirror.invalidate_oldest(2)
        assert read_view(mirror, mirror) == read_view(channel)


def test_a_host_that_changes_while_it_is_read_is_not_kept():
    channel = MemoryChannel()
    channel.on_change = lambda _: None
    mirror = Mirror(channel)
    assert mirror.unchanged(["h1", "h2"]) == {}
    mirror.invalidate(paths.observed("h1"))
    mirror.keep({"h1": 1, "h2": 2})
    assert mirror.unchanged(["h1", "h2"]) == {"h2": 2}
    mirror.invalidate(None)
    assert mirror.unchanged(["h2"]) == {}
