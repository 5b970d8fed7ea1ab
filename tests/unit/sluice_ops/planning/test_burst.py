"""A burst launches as few instances as possible.

An impossible burst is refused before anything is launched.
"""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.api import declarations
from sluice_ops.model.change import ChangeSpec
from sluice_ops.model.ids import HostName
from sluice_ops.model.incarnation import Placement
from sluice_ops.model.resources import Capacity
from sluice_ops.model.share import Layer, LayerEntry, Layers, Share
from sluice_ops.model.tier import Mode
from sluice_ops.planning.changes.burst import BurstError, instances, launched, refuse_too_many
from sluice_ops.planning.changes.kinds import KINDS
from sluice_ops.planning.placement.cluster import Cluster, Host, RefusedError, Rules, TierNow, holding

ENTRY = next(spec for spec in declarations.load("hits").specs() if spec.name == "entry")
ONE = Capacity(cpu=ENTRY.quantum.cpu, memory=ENTRY.quantum.memory)


@given(k=st.integers(1, 50), cpus=st.integers(1, 9), memories=st.integers(1, 9))
def test_a_burst_launches_the_fewest_instances_for_all_workers(k: int, cpus: int, memories: int) -> None:
    capacity = Capacity(cpu=ONE.cpu * cpus, memory=ONE.memory * memories)
    count = instances(ENTRY, k, capacity)
    workers_per_instance = min(cpus, memories)
    assert (count - 1) * workers_per_instance < k <= count * workers_per_instance


def test_too_many_instances_are_refused_with_alternatives() -> None:
    refuse_too_many(ENTRY, 2, 2, running=1, most=3)
    with pytest.raises(
        BurstError,
        match=r"2 workers of entry on EC2 need 2 more instances, 2 run already, "
        r"and ec2.max_instances is 3; ask for fewer",
    ):
        refuse_too_many(ENTRY, 2, 2, running=2, most=3)


def burst_entry(tenant: str, extra: int, to: str = "zone:ec2") -> LayerEntry:
    return LayerEntry(tenant=tenant, layer=Layer.PERSON, extra=extra, extra_to=to, owner="test", at=0.0)


def bursting(*entries: LayerEntry, maximum: int = 9) -> Cluster:
    """Return a cluster with one running instance and these bursts."""
    rules = Rules(
        shares={ENTRY.name: Share(target=1, maximum=maximum)},
        layers=Layers(entries=entries),
        instance=ONE,
        partitions=6,
    )
    return Cluster({"ec2-1": Host("ec2-1", "ec2", (), ONE)}, {ENTRY.name: TierNow(ENTRY)}, (), rules)


def after_burst(k: int, cluster: Cluster) -> dict[str, int]:
    """Return the burst slots of each tier after a burst of `entry`."""
    spec = ChangeSpec(kind="burst", tier=ENTRY.name, k=k)
    list(KINDS["burst"].refuse(spec, cluster))
    layers = KINDS["burst"].layers(spec, cluster, "test", 1.0)
    return {entry.tenant: entry.extra for entry in layers.entries}


def test_a_further_burst_adds_workers_and_leaves_other_tiers_alone() -> None:
    cluster = bursting(burst_entry("counts", 2))
    assert after_burst(1, cluster) == {"counts": 2, "entry": 1}
    cluster = bursting(burst_entry("counts", 2), burst_entry("entry", 1))
    assert after_burst(3, cluster) == {"counts": 2, "entry": 4}


def test_a_further_burst_beyond_the_maximum_or_elsewhere_is_refused() -> None:
    with pytest.raises(RefusedError, match="5 is above its maximum of 4"):
        after_burst(2, bursting(burst_entry("entry", 2), maximum=4))
    with pytest.raises(
        RefusedError, match=r"burst of 2 workers at zone:other; end it with `sluice leave --t"
    ):
        after_burst(1, bursting(burst_entry("entry", 2, "zone:other")))


def test_a_further_burst_by_a_handover_needs_room_for_all_its_workers() -> None:
    spec = ChangeSpec(kind="burst", tier=ENTRY.name, k=1)
    assert sorted(launched(spec, bursting()).hosts) == ["ec2-1"], "the running instance has room"
    further = launched(spec, bursting(burst_entry("entry", 2)))
    assert sorted(further.hosts) == ["ec2-1", "ec2-new-1", "ec2-new-2"]


@pytest.mark.parametrize(
    ("fields", "count"), [({"mode": Mode.BATCH}, 1), ({"mode": Mode.REALTIME}, 1), ({"state": True}, 3)]
)
def test_a_further_burst_in_place_needs_room_for_its_own_workers_only(
    fields: dict[str, Any], count: int
) -> None:
    cluster = bursting(burst_entry("entry", 2))
    now = Placement(driver=HostName("h1"), slots=(HostName("ec2-1"), HostName("ec2-2")))
    hosts = {
        "h1": Host("h1", "onprem", (), ONE),
        "ec2-1": Host("ec2-1", "ec2", (), ONE),
        "ec2-2": Host("ec2-2", "ec2", (), ONE),
    }
    tier = TierNow(ENTRY.model_copy(update=fields), now)
    cluster = replace(cluster, hosts=holding(hosts, ENTRY, now), tiers={ENTRY.name: tier})
    further = launched(ChangeSpec(kind="burst", tier=ENTRY.name, k=1), cluster)
    assert len(further.hosts) == len(hosts) + count


def test_a_worker_larger_than_an_instance_is_refused_with_both_sizes() -> None:
    small = Capacity(cpu=ONE.cpu, memory=ONE.memory - 1)
    with pytest.raises(
        BurstError,
        match=rf"\({ONE.cpu:g} cpu, {ONE.memory} MiB\) is larger than an instance .*choose larger",
    ):
        instances(ENTRY, 1, small)


def test_instances_to_launch_are_dedicated_as_running_ones_are() -> None:
    rules = Rules(instance=ONE, dedicated={"zone:ec2": frozenset({"counts"})})
    spec = ChangeSpec(kind="burst", tier=ENTRY.name, k=2)
    cluster = launched(spec, Cluster({}, {ENTRY.name: TierNow(ENTRY)}, (), rules))
    assert {name: host.only for name, host in cluster.hosts.items()} == dict.fromkeys(
        ("ec2-new-1", "ec2-new-2"), frozenset({"counts"})
    )
