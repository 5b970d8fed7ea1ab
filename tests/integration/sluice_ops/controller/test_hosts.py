"""Real controllers while hosts are lost, clocks jump, and two people change the same tier."""

import time
import uuid

import pytest

from sluice_ops.model import paths
from sluice_ops.model.assignment import HostState
from sluice_ops.model.change import Step
from sluice_ops.model.incarnation import State
from sluice_ops.model.status import ControllerStatus
from sluice_ops.process import metrics_server
from tests.integration.sluice_ops.controller.test_leaders import leader, open_pipeline

pytestmark = [pytest.mark.timeout(400), pytest.mark.long]


@pytest.fixture
def pipeline(zookeeper, tmp_path):
    """A leading controller, and running tiers."""
    with open_pipeline(f"{zookeeper}/{uuid.uuid4().hex}", tmp_path) as (world, controllers):
        clock = tmp_path / "ahead"
        clock.write_text("0")
        controllers.start("c1", "tests.shifted_clock", clock)
        world.want()
        world.until_true(lambda: leader(world) == "c1" and world.all_well(), 120)
        yield world, controllers, clock


def status(world):
    return world.channel.read(paths.CONTROLLER_STATUS, ControllerStatus).value


@pytest.mark.parametrize("jump", [3600, -3600])
def test_a_jump_of_the_leaders_clock_expires_nothing_and_blocks_nothing(pipeline, jump):
    world, controllers, clock = pipeline
    before = world.owner("outbound").owner
    runbook = world.begin("d1", kind="drain", host=world.placement("entry").driver)
    world.until_true(lambda: world.next_driver("entry") is not None, 90)
    clock.write_text(str(jump))
    world.until_true(lambda: runbook.ended, 180)
    assert runbook.ok, runbook.results
    assert abs(status(world).at - time.time() - jump) < 60, "the leader's clock has jumped"
    for _ in range(3):  # the second and third restart wait first
        number = world.owner("outbound").owner
        world.kill_driver("outbound")
        world.until_true(
            lambda number=number: (
                world.owner("outbound").owner > number and world.state("outbound") is State.RUNNING
            ),
            60,
        )
    assert world.owner("outbound").owner <= before + 4, (
        "the tier was restarted once for each death, and moved once"
    )
    clock.write_text("0")
    controllers.start("c2")
    world.until_true(lambda: len(metrics_server.exporters(world.channel)) == 2, 60)
    controllers.end("c1", kill=True)
    world.until_true(lambda: leader(world) == "c2", 60)
    returning = world.begin("r1", kind="return", host=runbook.spec.host)
    world.until_true(lambda: returning.ended, 60)
    assert returning.ok, returning.results
    assert {world.state(name) for name in world.specs} == {State.RUNNING}
    world.check_settled()


def test_a_handover_that_loses_its_target_goes_to_another_host(pipeline):
    world, *_ = pipeline
    host = world.placement("entry").driver
    runbook = world.begin("d1", kind="drain", host=host)
    world.until_true(lambda: world.next_driver("entry") is not None, 90)
    target = world.incarnation("entry", world.owner("entry").next).placement.driver
    world.agents[target].die()
    world.until_true(lambda: runbook.ended, 300)
    assert {world.state(name) for name in world.specs} == {State.RUNNING}
    used = {name for tier in world.specs for name in world.placement(tier).hosts}
    assert target not in used
    if runbook.ok:
        assert host not in used
    else:
        assert world.host_state(host) is HostState.UP, "after a failed drain, the host is in use"
    world.check_settled()


def test_nothing_moves_while_two_of_three_hosts_are_lost(pipeline):
    world, *_ = pipeline
    for tier, name in (("counts", "h1"), ("enrich", "h2"), ("entry", "h3")):
        runbook = world.begin(f"m-{tier}", kind="migrate", tier=tier, to=name)
        world.until_true(lambda runbook=runbook: runbook.ended, 120)
        assert runbook.ok, runbook.results
    before = {name: (world.owner(name).owner, world.placement(name)) for name in world.specs}
    for name in ("h1", "h2"):
        world.agents[name].die()
    world.until_true(lambda: set(status(world).braked) == {"h1", "h2"}, 60)
    assert "BRAKE: many hosts were lost at once" in status(world).sentence
    for _ in range(100):
        world.tick()
    assert {name: (world.owner(name).owner, world.placement(name)) for name in world.specs} == before
    for name in ("h1", "h2"):
        world.agents[name].register()
    world.until_true(lambda: not status(world).braked and world.all_well(), 120)


def test_the_second_of_two_simultaneous_changes_names_the_first(pipeline):
    world, *_ = pipeline
    runbooks = [world.begin(f"s{k}", kind="scale", tier="counts", k=k) for k in (2, 3)]
    world.until_true(lambda: all(runbook.ended for runbook in runbooks), 180)
    (done,), (refused,) = (
        [runbook for runbook in runbooks if runbook.ok],
        [runbook for runbook in runbooks if not runbook.ok],
    )
    assert (
        f"change {done.change} (scale counts k={done.spec.k}, by test) has held the maintenance lock since"
        in refused.results[Step.PREFLIGHT].sentence
    )
    assert len(world.placement("counts").slots) == done.spec.k
    world.check_settled()
