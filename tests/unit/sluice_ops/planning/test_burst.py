"""A burst launches as few instances as possible.

An impossible burst is refused before anything is launched.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.api import declarations
from sluice_ops.model.change import ChangeSpec
from sluice_ops.model.resources import Capacity
from sluice_ops.model.share import Layer, LayerEntry, Layers
from sluice_ops.planning.changes.burst import BurstError, instances, launched, refuse_second
from sluice_ops.planning.placement.cluster import Cluster, Rules, TierNow

ENTRY = next(spec for spec in declarations.load("hits").specs() if spec.name == "entry")
ONE = Capacity(cpu=ENTRY.quantum.cpu, memory=ENTRY.quantum.memory)


@given(k=st.integers(1, 50), cpus=st.integers(1, 9), memories=st.integers(1, 9))
def test_a_burst_launches_the_fewest_instances_for_all_workers(k: int, cpus: int, memories: int) -> None:
    capacity = Capacity(cpu=ONE.cpu * cpus, memory=ONE.memory * memories)
    count = instances(ENTRY, k, capacity, running=0, most=1000)
    workers_per_instance = min(cpus, memories)
    assert (count - 1) * workers_per_instance < k <= count * workers_per_instance


def test_too_many_instances_are_refused_with_alternatives() -> None:
    assert instances(ENTRY, 2, ONE, running=1, most=3) == 2
    with pytest.raises(
        BurstError,
        match=r"2 workers of entry need 2 instances, 2 run already, "
        r"and ec2.max_instances is 3; ask for fewer",
    ):
        instances(ENTRY, 2, ONE, running=2, most=3)


def test_a_second_burst_is_refused_and_bursts_of_other_tiers_do_not_count() -> None:
    def burst_entry(tenant: str, extra: int) -> LayerEntry:
        return LayerEntry(
            tenant=tenant, layer=Layer.PERSON, extra=extra, extra_to="zone:ec2", owner="test", at=0.0
        )

    refuse_second(ENTRY, Layers(entries=(burst_entry("counts", 2), burst_entry("entry", 0))))
    with pytest.raises(BurstError, match=r'"entry" already has a burst of 2 workers; leave EC2 first'):
        refuse_second(ENTRY, Layers(entries=(burst_entry("entry", 2),)))


def test_a_worker_larger_than_an_instance_is_refused_with_both_sizes() -> None:
    small = Capacity(cpu=ONE.cpu, memory=ONE.memory - 1)
    with pytest.raises(
        BurstError,
        match=rf"\({ONE.cpu:g} cpu, {ONE.memory} MiB\) is larger than an instance .*choose larger",
    ):
        instances(ENTRY, 1, small, running=0, most=3)


def test_instances_to_launch_are_dedicated_as_running_ones_are() -> None:
    rules = Rules(instance=ONE, dedicated={"zone:ec2": frozenset({"counts"})})
    spec = ChangeSpec(kind="burst", tier=ENTRY.name, k=2)
    cluster = launched(spec, Cluster({}, {ENTRY.name: TierNow(ENTRY)}, (), rules))
    assert {name: host.only for name, host in cluster.hosts.items()} == dict.fromkeys(
        ("ec2-new-1", "ec2-new-2"), frozenset({"counts"})
    )
