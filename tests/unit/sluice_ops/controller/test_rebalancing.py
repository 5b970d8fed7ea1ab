"""Rebalance: by the loads in the scaler's record, one handover for each tier that moves."""

from dataclasses import replace

import pytest
from simulation.world import RULES, World, host, tier

from sluice_ops.model import paths
from sluice_ops.model.change import ChangeRecord, Step
from sluice_ops.model.scaler import ScalerRecord
from sluice_ops.model.share import Share
from sluice_ops.model.tier import Mode

NAMES = ("counts", "enrich", "outbound")


@pytest.fixture
def world():
    """Three tiers of one worker on one host, beside two hosts that have joined."""
    shares = {name: Share(minimum=1, target=1, maximum=4) for name in NAMES}
    tiers = [tier(name, Mode.BATCH, number) for number, name in enumerate(NAMES)]
    world = World(hosts=(host("h1", cpu=8),), tiers=tiers, rules=replace(RULES, shares=shares, shifts={}))
    world.bring_up()
    for name in ("h2", "h3"):
        world.add_host(host(name, cpu=8))
    world.settle()
    return world


def measured(world, **busy):
    world.channel.put(paths.SCALER, ScalerRecord(busy=busy))
    world.tick()


def rebalance(world, identity="r1"):
    runbook = world.begin(identity, kind="rebalance")
    world.settle()
    return runbook


def test_the_fewest_workers_leave_a_loaded_host_and_then_none_moves(world):
    measured(world, counts=1.0, enrich=1.0, outbound=1.0)
    drivers = {name: world.placement(name).driver for name in NAMES}
    runbook = rebalance(world)
    assert runbook.ok, runbook.results
    moved = {name for name in NAMES if world.placement(name).slots != ("h1",)}
    assert moved == {"counts"}
    assert "load: h1 38% → 25%, h2 0% → 12%" in runbook.results[Step.PREFLIGHT].sentence
    assert {name: world.placement(name).driver for name in NAMES} == drivers
    world.check_settled()
    owners = {name: world.owner(name).owner for name in NAMES}
    again = rebalance(world, "r2")
    assert again.ok
    assert "no host is above 30%" in again.results[Step.PREFLIGHT].sentence
    assert {name: world.owner(name).owner for name in NAMES} == owners


def test_the_record_keeps_the_moves_when_the_loads_change_meanwhile(world):
    measured(world, counts=1.0, enrich=1.0, outbound=1.0)
    runbook = world.begin("r1", kind="rebalance")
    world.until(lambda: Step.PREFLIGHT in runbook.results)
    measured(world, counts=0.0, enrich=0.0, outbound=1.0)
    world.settle()
    assert runbook.ok, runbook.results
    (move,) = world.channel.read(paths.change("r1"), ChangeRecord).value.spec.moving
    assert world.placement(move.tier).slots == (move.to,)


def test_without_loads_a_rebalance_is_refused(world):
    runbook = rebalance(world)
    assert not runbook.ok
    assert "no load is known yet" in runbook.results[Step.PREFLIGHT].sentence
