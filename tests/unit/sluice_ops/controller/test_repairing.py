"""Automatic repair of drift: after a wait, one tier at a time, and never during another change."""

from dataclasses import replace

import pytest
from simulation.world import RULES, StatusWorld, host, tier

from sluice_ops.channel import trail_queue
from sluice_ops.controller.policies.settling import ATTEMPT_INTERVAL_SECONDS
from sluice_ops.model import paths
from sluice_ops.model.change import CONTROLLER, ChangeRecord, ChangeState, Operation, Step
from sluice_ops.model.incarnation import State
from sluice_ops.model.repair import Repair
from sluice_ops.model.share import Share
from sluice_ops.model.tier import Mode
from sluice_ops.model.trail import Outcome

WAIT = 300.0


def joined(*names, wait=WAIT, cpu=8):
    """Return a world with tiers of three workers on two hosts, and a third host that has joined."""
    shares = {name: Share(minimum=1, target=3, maximum=4) for name in names}
    tiers = [tier(name, Mode.BATCH, number) for number, name in enumerate(names)]
    rules = replace(RULES, shares=shares, partitions=8, repair=wait and Repair(after=wait))
    world = StatusWorld(hosts=(host("h1", cpu=cpu), host("h2", cpu=cpu)), tiers=tiers, rules=rules)
    world.bring_up()
    world.add_host(host("h3", cpu=cpu))
    world.tick()
    return world


def pass_time(world, seconds, step=10.0):
    """Let time pass in steps with a pass of the controller after each."""
    for _ in range(int(seconds / step)):
        world.tick(step)


def repairs(world):
    """Return the controller's repairs, in the order in which they began."""
    names = [name for name in world.channel.children("/changes") if name.startswith("repair-")]
    records = [world.channel.read(paths.change(name), ChangeRecord).value for name in names]
    return sorted(records, key=lambda change: change.started_at)


def ended(world):
    """Let the active repairs end; return their final states."""
    world.until(
        lambda: repairs(world) and all(change.state is not ChangeState.ACTIVE for change in repairs(world))
    )
    world.settle()
    world.check_settled()
    return [change.state for change in repairs(world)]


def is_on(world, name, tenant="counts"):
    return name in world.placement(tenant).slots


def test_long_drift_is_repaired_by_an_ordinary_change():
    world = joined("counts")
    pass_time(world, WAIT - 20)
    assert not repairs(world)
    pass_time(world, 40)
    assert ended(world) == [ChangeState.DONE]
    (change,) = repairs(world)
    assert (change.by, change.spec.tier) == (CONTROLLER, "counts")
    assert change.receipts["counts"]
    assert sorted(world.placement("counts").slots) == ["h1", "h2", "h3"]
    assert any(
        "counts has drifted for 300 s: the tier has 2 workers on" in sentence for sentence in world.sentences
    )
    entries = [
        queued.entry for queued in trail_queue.queued(world.channel) if queued.entry.change == change.id
    ]
    assert {(entry.outcome, entry.layer, entry.by) for entry in entries} == {
        (Outcome.BEGUN, None, CONTROLLER),
        (Outcome.DONE, None, CONTROLLER),
    }
    pass_time(world, 2 * WAIT)
    assert len(repairs(world)) == 1, "a tier in its place is not moved again"


@pytest.mark.parametrize("away", ["drained", "lost"])
def test_a_pinned_worker_comes_back_when_its_host_does(away):
    rules = replace(
        RULES,
        shares={"counts": Share(minimum=1, target=2, maximum=4)},
        pinned={"counts": {"h3": 1}},
        partitions=8,
        repair=Repair(after=WAIT),
    )
    world = StatusWorld(
        hosts=(host("h1"), host("h2"), host("h3")), tiers=[tier("counts", Mode.BATCH, 0)], rules=rules
    )
    world.want()
    world.settle()
    assert is_on(world, "h3")
    if away == "drained":
        world.begin("d1", kind="drain", host="h3")
    else:
        world.agents["h3"].die()
    world.settle()
    assert sorted(world.placement("counts").slots) == ["h1", "h2"]
    pass_time(world, 2 * WAIT)
    assert not repairs(world)
    assert world.statuses["counts"].drift == f"has 0 of 1 pinned workers on h3: h3 is {away}"
    if away == "drained":
        world.begin("b1", kind="return", host="h3")
    else:
        world.agents["h3"].register()
    pass_time(world, WAIT - 20)
    assert not repairs(world)
    assert world.statuses["counts"].drift == (
        "has 0 of 1 pinned workers on h3; the controller moves it after 300 s of drift"
    )
    pass_time(world, 60)
    assert ended(world) == [ChangeState.DONE]
    pass_time(world, 2 * WAIT)
    assert len(repairs(world)) == 1
    assert world.placement("counts").slots.count("h3") == 1
    assert world.statuses["counts"].drift is None


def test_without_a_site_setting_drift_waits_for_an_operator():
    world = joined("counts", wait=None)
    pass_time(world, 10 * WAIT)
    assert not repairs(world)
    assert not is_on(world, "h3")


def test_a_host_that_comes_and_goes_moves_nothing():
    world = joined("counts")
    for _ in range(4):
        pass_time(world, WAIT - 60)
        world.agents["h3"].die()
        pass_time(world, 30)
        world.agents["h3"].register()
    assert not repairs(world)


def test_a_repair_waits_for_another_change_and_restarts_its_wait():
    world = joined("counts", "enrich")
    pass_time(world, WAIT - 60)
    pause = world.begin("p1", kind="pause", tier="enrich")
    world.until(lambda: pause.ended)
    back = world.begin("p2", kind="resume", tier="enrich")
    world.settle()
    assert pause.ok
    assert back.ok
    pass_time(world, WAIT - 60)
    assert not repairs(world)
    pass_time(world, 100)
    assert repairs(world)


def test_tiers_are_repaired_in_turn_without_a_second_full_wait():
    world = joined("counts", "enrich")
    pass_time(world, WAIT)
    for _ in range(100):
        world.tick()
        assert sum(change.state is ChangeState.ACTIVE for change in repairs(world)) <= 1
    first, second = repairs(world)
    assert (first.spec.tier, second.spec.tier) == ("counts", "enrich"), "nearest the pipeline's end first"
    assert second.started_at - first.ended_at < WAIT / 2
    assert is_on(world, "h3", "counts")
    assert is_on(world, "h3", "enrich")
    world.check_settled()


def test_nothing_is_repaired_while_the_brake_holds():
    world = joined("counts", "enrich")
    pass_time(world, WAIT - 60)
    for name in ("h1", "h2"):
        world.agents[name].die()
    pass_time(world, 2 * WAIT)
    assert any(sentence.startswith("BRAKE") for sentence in world.sentences)
    assert not repairs(world)


@pytest.mark.parametrize("moment", [0, 1, 3])
def test_an_aborted_repair_is_tried_again_after_the_full_wait(moment):
    world = joined("counts")
    pass_time(world, WAIT - 20)
    world.until(lambda: repairs(world))
    for _ in range(moment):
        world.tick()
    (change,) = repairs(world)
    assert change.state is ChangeState.ACTIVE
    aborted = Operation(
        id=f"{change.id}.{Step.ABORT}",
        change=change.id,
        step=Step.ABORT,
        spec=change.spec,
        by="cli:anna",
        posted_at=world.now,
    )
    world.channel.create(paths.operation(aborted.id), aborted)
    assert ended(world) == [ChangeState.ABORTED]
    pass_time(world, WAIT - 100)
    assert len(repairs(world)) == 1
    pass_time(world, ATTEMPT_INTERVAL_SECONDS)
    world.until(lambda: is_on(world, "h3"))
    assert ended(world)[0] is ChangeState.ABORTED


def test_a_failed_repair_is_undone_and_tried_again():
    world = joined("counts")
    pass_time(world, WAIT - 20)
    world.until(lambda: world.next_driver("counts") is not None)
    world.next_driver("counts").broken = {State.WARMING, State.READY}
    assert ended(world) == [ChangeState.ABORTED]
    assert not is_on(world, "h3")
    pass_time(world, ATTEMPT_INTERVAL_SECONDS)
    assert ended(world) == [ChangeState.ABORTED, ChangeState.DONE]
    assert is_on(world, "h3")


def test_a_repair_without_room_is_not_tried():
    world = joined("counts", cpu=2.5)
    pass_time(world, 4 * WAIT)
    assert not repairs(world)


def test_a_burst_without_its_host_is_repaired_only_when_a_host_exists():
    hosts = (*(host(name) for name in ("h1", "h2", "h3")), host("e1", zone="ec2"))
    shares = {"counts": Share(minimum=1, target=2, maximum=4)}
    world = StatusWorld(
        hosts=hosts,
        tiers=[tier("counts", Mode.BATCH, 0)],
        rules=replace(RULES, shares=shares, partitions=8, repair=Repair(after=60.0)),
    )
    world.bring_up()
    burst = world.begin("b1", kind="burst", tier="counts", k=1)
    world.until(lambda: burst.ended)
    world.agents["e1"].die()
    pass_time(world, 60)
    drain = world.begin("d1", kind="drain", host=world.placement("counts").driver)
    world.until(lambda: drain.ended)
    assert "e1" not in world.placement("counts").hosts
    pass_time(world, 1800)
    assert not repairs(world)


def located(*, repair, place="zone:b"):
    """Return a settled world with hosts in two zones, and a tier whose `locality` has changed."""
    world = StatusWorld(
        hosts=(host("h1"), host("h2"), host("h3", zone="b"), host("h4", zone="b")),
        tiers=[tier("counts", Mode.BATCH, 0)],
        rules=replace(
            RULES,
            shares={"counts": Share(minimum=1, target=2, maximum=4)},
            locality={"counts": "zone:onprem"},
            partitions=8,
            repair=repair,
        ),
    )
    world.bring_up()
    assert sorted(world.placement("counts").slots) == ["h1", "h2"]
    world.rules = replace(world.rules, locality={"counts": place})
    return world


def test_a_changed_locality_takes_effect_by_itself():
    world = located(repair=Repair(after=WAIT))
    pass_time(world, WAIT - 20)
    assert world.statuses["counts"].drift == (
        "has to be at zone:b, and has workers on h1, h2; has to be at zone:b, and has its driver on "
        f"{world.placement('counts').driver}; the controller moves it after 300 s of drift"
    )
    pass_time(world, 40)
    assert ended(world) == [ChangeState.DONE]
    assert sorted(world.placement("counts").slots) == ["h3", "h4"]
    assert world.statuses["counts"].drift is None


def test_without_automatic_repair_the_status_names_no_drift():
    world = located(repair=None)
    pass_time(world, 2 * WAIT)
    assert world.statuses["counts"].drift is None


def test_a_place_that_no_host_has_is_told_until_a_host_joins_there():
    world = located(repair=Repair(after=60.0), place="zone:c")
    pass_time(world, 120)
    drift = world.statuses["counts"].drift
    assert drift.startswith("has to be at zone:c, and there is no such host; this cannot be repaired now")
    assert not repairs(world)
    world.add_host(host("h5", zone="c"))
    pass_time(world, 120)
    assert ended(world) == [ChangeState.DONE]
    assert world.placement("counts").hosts == {"h5"}


class Opening:
    """A window that opens at a time."""

    def __init__(self, at):
        self.at = at

    def opens(self, now):
        return None if now >= self.at else self.at


def test_outside_the_window_the_status_says_when_the_tier_is_moved():
    world = located(repair=None)
    opens = world.now + 3600
    world.rules = replace(world.rules, repair=Repair(after=60.0, window=Opening(opens)))
    pass_time(world, 3500)
    assert not repairs(world)
    assert "; the controller moves it from " in world.statuses["counts"].drift
    assert world.statuses["counts"].drift.endswith("UTC on, in the window of the site file")
    pass_time(world, 120)
    assert ended(world) == [ChangeState.DONE]
    assert repairs(world)[0].started_at >= opens


def test_no_more_repairs_begin_within_an_hour_than_the_site_allows():
    names = ("counts", "enrich", "outbound")
    world = joined(*names, cpu=16)
    world.rules = replace(world.rules, repair=Repair(after=60.0, changes_per_hour=2))
    pass_time(world, 1800)
    assert [change.spec.tier for change in repairs(world)] == ["counts", "enrich"]
    assert world.statuses["outbound"].drift.endswith(
        "later: 2 repairs have begun within an hour, as many as changes_per_hour allows"
    )
    pass_time(world, 2400)
    assert [change.spec.tier for change in repairs(world)] == list(names)
