"""The simulated cluster: it has the requested size, every slot finds a host, and impossible sizes
are refused.
"""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice_ops.controller.decide import decide
from sluice_ops.local.simulation import machine
from sluice_ops.local.simulation.cluster import LARGEST_TIER, Size, SizeError, check, facts, tiers, unplanned
from sluice_ops.local.simulation.targets import plan_seconds
from sluice_ops.model.assignment import Assignment


@settings(max_examples=20)
@given(st.integers(4, 60), st.data())
def test_one_decision_places_every_slot_and_no_host_holds_too_much(hosts, data):
    size = Size(hosts, data.draw(st.integers(4, hosts * 8)))
    check(size)
    decision = decide(*unplanned(size))
    assigned = {
        write.path: write.value.units for write in decision.writes if isinstance(write.value, Assignment)
    }
    slots = Counter(unit.tenant for units in assigned.values() for unit in units if unit.kind == "slot")
    assert slots == {name: count for name, (_, count) in tiers(size).items()}
    assert slots.total() == size.slots
    assert max(slots.values()) <= LARGEST_TIER
    for units in assigned.values():
        assert sum(unit.quantum.cpu for unit in units) <= facts(size, 0).cpu
        assert sum(unit.quantum.memory for unit in units) <= facts(size, 0).memory


@pytest.mark.parametrize(
    ("hosts", "slots", "reason"),
    [
        (3, 10, "--hosts 3: choose a number from 4 to 20000"),
        (30_000, 10, "--hosts 30000: choose a number from 4 to 20000"),
        (10, 0, r"--slots 0: with 10 hosts, choose a number from 4 to 640 \(64 on each host\)"),
        (10, 641, "--slots 641"),
    ],
)
def test_an_impossible_size_is_refused_with_the_possible_ones(hosts, slots, reason):
    with pytest.raises(SizeError, match=reason):
        check(Size(hosts, slots))


def test_a_machine_that_is_too_small_is_refused_before_the_start(monkeypatch):
    size = Size(1000, 8000)
    monkeypatch.setattr(machine, "available", lambda: 300)
    with pytest.raises(
        machine.PlatformError,
        match=r"1000 hosts need about \d+ MiB, but 300 MiB are free: "
        r"simulate fewer hosts, or stop other programs",
    ):
        machine.check(size)
    monkeypatch.setattr(machine, "available", lambda: 1_000_000)
    monkeypatch.setattr(machine.resource, "getrlimit", lambda _: (256, 4096))
    with pytest.raises(
        machine.PlatformError,
        match=r"200 sessions need 800 open files, but `ulimit -n` is 256: first run `ulimit -n 800`",
    ):
        machine.check(size)


def test_the_target_of_planning_grows_with_the_hosts():
    assert [plan_seconds(hosts) for hosts in (50, 1000, 5500, 10_000)] == [
        0.15,
        0.15,
        pytest.approx(1.075),
        2.0,
    ]
