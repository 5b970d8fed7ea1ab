"""Changes from the request to the result, with simulated agents and drivers."""

import pytest
from simulation.world import World, host, settled, tier

from sluice_ops.model import paths
from sluice_ops.model.assignment import Assignment, HostRecord, HostState
from sluice_ops.model.change import Step
from sluice_ops.model.incarnation import IncarnationReport, Phase, State
from sluice_ops.model.share import Share
from sluice_ops.model.status import ControllerStatus
from sluice_ops.model.tier import Mode
from sluice_ops.planning.placement.cluster import Rules

TIGHT = Rules(shares={"t0": Share(minimum=1, target=2, maximum=2), "t1": Share()}, locality={"t1": "h2"})


@pytest.fixture
def world():
    return settled()


def sentences(runbook):
    return {step: result.sentence for step, result in runbook.results.items()}


def test_wanted_tiers_are_started_and_run(world):
    assert {name: world.state(name) for name in world.specs} == dict.fromkeys(world.specs, State.RUNNING)
    assert len(world.placement("enrich").slots) == 2
    world.check_settled()


def test_a_drained_host_is_empty_and_its_tiers_run_elsewhere(world):
    drained = world.placement("entry").driver
    runbook = world.begin("d1", kind="drain", host=drained)
    world.settle()
    assert runbook.ok, sentences(runbook)
    assert world.host_state(drained) is HostState.DRAINED
    assert not world.agents[drained].units
    world.check_settled()
    back = world.begin("r1", kind="return", host=drained)
    world.settle()
    assert back.ok, sentences(back)
    assert world.host_state(drained) is HostState.UP


def test_a_hung_old_driver_is_killed_and_the_drain_continues(world):
    drained = world.placement("entry").driver
    runbook = world.begin("d1", kind="drain", host=drained)
    world.until(lambda: world.owner("entry").phase is Phase.CUT)
    world.driver("entry", 1).stuck = True
    world.until(lambda: runbook.ended)
    assert runbook.ok, sentences(runbook)
    assert (
        "1 left no receipt (it did not end by itself); 2 went on from the last commit"
        in sentences(runbook)[Step.VERIFY]
    )
    assert any(
        "entry: incarnation 1 has not ended after its handover and is taken away; incarnation 2 goes on"
        in sentence
        for sentence in world.sentences
    )
    world.settle()
    assert not world.agents[drained].units
    world.check_settled()


def test_a_reboot_drains_reboots_and_gives_the_host_back(world):
    runbook = world.begin("b1", kind="reboot", host="h2")
    world.settle()
    assert runbook.ok, sentences(runbook)
    assert world.agents["h2"].rebooted == "b1.reboot"
    assert world.channel.read(paths.assignment("h2"), Assignment).value.reboot is None, (
        "the request is gone, so no agent reboots a second time"
    )
    assert world.host_state("h2") is HostState.UP
    world.check_settled()


@pytest.mark.parametrize("k", [1, 3])
def test_a_tier_is_scaled_up_and_down(world, k):
    runbook = world.begin("s1", kind="scale", tier="enrich", k=k)
    world.settle()
    assert runbook.ok, sentences(runbook)
    assert len(world.placement("enrich").slots) == k
    world.kill_driver("enrich")
    world.settle()
    assert len(world.placement("enrich").slots) == k, "a restart keeps the operator's number"


def test_a_percentage_share_is_unchanged_by_hosts_that_are_away(world):
    runbook = world.begin("s1", kind="scale", tier="enrich", k="12.5%")
    world.settle()
    assert runbook.ok, sentences(runbook)
    assert "12.5% of 24 slots are 3" in sentences(runbook)[Step.PREFLIGHT]
    assert len(world.placement("enrich").slots) == 3
    world.agents["h3"].die()
    world.settle()
    world.kill_driver("enrich")
    world.settle()
    assert len(world.placement("enrich").slots) == 3
    small = world.begin("s2", kind="scale", tier="enrich", k="4%")
    world.settle()
    assert 'tier "enrich": 0 is below its minimum of 1' in sentences(small)[Step.PREFLIGHT]


def test_a_tier_migrated_to_a_label_stays_there_when_it_is_restarted(world):
    runbook = world.begin("m1", kind="migrate", tier="enrich", to="label:fast")
    world.settle()
    assert runbook.ok, sentences(runbook)
    assert world.placement("enrich").hosts == {"h1"}
    world.kill_driver("enrich")
    world.settle()
    assert world.placement("enrich").hosts == {"h1"}


def test_bursts_add_workers_one_after_the_other_and_leaving_ends_all(world):
    before = world.placement("enrich")
    world.add_host(host("e1", zone="ec2"))
    world.tick()
    burst = world.begin("u1", kind="burst", tier="enrich", k=1)
    world.settle()
    assert burst.ok, sentences(burst)
    assert sorted(world.placement("enrich").slots) == sorted([*before.slots, "e1"])
    assert world.placement("enrich").driver == before.driver
    further = [world.begin("u2", kind="burst", tier="enrich", k=1)]
    world.settle()
    further.append(world.begin("u3", kind="burst", tier="counts", k=1))
    world.settle()
    assert all(each.ok for each in further), [sentences(each) for each in further]
    assert sorted(world.placement("enrich").slots) == sorted([*before.slots, "e1", "e1"])
    assert world.placement("counts").slots.count("e1") == 1
    leave = world.begin("l1", kind="leave")
    world.settle()
    assert leave.ok, sentences(leave)
    assert sorted(world.placement("enrich").slots) == sorted(before.slots)
    assert not world.agents["e1"].units


def test_a_leave_moves_a_tier_off_a_burst_host_it_was_migrated_to(world):
    world.add_host(host("e1", zone="ec2"))
    world.tick()
    for number, fields in enumerate(({"kind": "migrate", "tier": "enrich", "to": "e1"}, {"kind": "leave"})):
        runbook = world.begin(f"r{number}", **fields)
        world.settle()
        assert runbook.ok, sentences(runbook)
    assert "e1" not in world.placement("enrich").hosts
    world.kill_driver("enrich")
    world.settle()
    assert "e1" not in world.placement("enrich").hosts


def test_a_night_shift_lends_a_slot_to_batch_and_the_day_shift_reclaims_it(world):
    night = world.begin("n1", kind="shift", shift="night")
    world.settle()
    assert night.ok, sentences(night)
    lent = [unit for name in world.agents for unit in world.assigned(name) if unit.tenant == "batch"]
    assert [(unit.id, unit.label) for unit in lent] == [("slot-batch-0-0", "sluice_batch_0")]
    assert len(world.placement("enrich").slots) == 1
    day = world.begin("n2", kind="shift", shift="day")
    world.settle()
    assert day.ok, sentences(day)
    assert len(world.placement("enrich").slots) == 2
    assert not [unit for name in world.agents for unit in world.assigned(name) if unit.tenant == "batch"]


def test_pause_and_resume_go_one_tier_at_a_time_from_the_pipelines_end(world):
    order = []
    runbook = world.begin("p1", kind="pause")
    while not runbook.ended:
        world.tick()
        paused = [name for name in world.specs if world.state(name) is State.PAUSED]
        order += [name for name in paused if name not in order]
        ordered = [name for name in world.specs if world.owner(name).paused]
        assert len(ordered) <= len(paused) + 1, "one at a time"
    assert runbook.ok, sentences(runbook)
    assert order == ["counts", "outbound", "enrich", "entry"]
    resume = world.begin("p2", kind="resume")
    world.settle()
    assert resume.ok, sentences(resume)


def test_one_tier_is_paused_and_resumed_alone(world):
    pause = world.begin("p1", kind="pause", tier="outbound")
    world.settle()
    assert pause.ok, sentences(pause)
    assert [name for name in world.specs if world.state(name) is State.PAUSED] == ["outbound"]
    misspelt = world.begin("p2", kind="pause", tier="outbond")
    world.settle()
    assert 'there is no tier "outbond"' in sentences(misspelt)[Step.PREFLIGHT]
    resume = world.begin("p3", kind="resume", tier="outbound")
    world.settle()
    assert resume.ok, sentences(resume)
    assert {world.state(name) for name in world.specs} == {State.RUNNING}


def test_a_paused_pipeline_can_be_drained_and_stays_paused(world):
    world.begin("p1", kind="pause")
    world.settle()
    drain = world.begin("d1", kind="drain", host=world.placement("enrich").driver)
    world.settle()
    assert drain.ok, sentences(drain)
    assert {world.state(name) for name in world.specs} == {State.PAUSED}


def test_a_second_change_is_refused_with_the_holder_of_the_lock(world):
    world.begin("d1", kind="drain", host="h1")
    world.tick()
    world.tick()
    second = world.begin("d2", kind="drain", host="h2")
    world.settle()
    assert (
        "change d1 (drain h1, by test) has held the maintenance lock since"
        in sentences(second)[Step.PREFLIGHT]
    )


def test_a_shift_waits_for_the_change_that_has_the_lock(world):
    drain = world.begin("d1", kind="drain", host="h1")
    world.tick()
    world.tick()
    night = world.begin("n1", kind="shift", shift="night")
    world.settle()
    assert drain.ok, sentences(drain)
    assert night.ok, sentences(night)


def test_a_runbook_of_the_scaler_waits_for_the_change_that_has_the_lock(world):
    scale = world.begin("scale-enrich-to-3-1", kind="scale", tier="enrich", k=3)
    world.tick()
    world.tick()
    leaves = {
        by: world.begin(f"leave-{number}", kind="leave", by=by)
        for number, by in enumerate(("airflow:leave_ec2/scaler__1", "airflow:leave_ec2/manual__1"))
    }
    world.settle()
    assert scale.ok, sentences(scale)
    done = {by: sentences(leave)[Step.PREFLIGHT] for by, leave in leaves.items()}
    assert "nothing has to move" in done["airflow:leave_ec2/scaler__1"]
    assert "has held the maintenance lock" in done["airflow:leave_ec2/manual__1"], "a person can ask again"


def test_an_incarnation_that_fails_to_prepare_fails_the_step(world):
    name = "counts"
    runbook = world.begin("d1", kind="drain", host=world.placement(name).driver)
    world.until(lambda: world.next_driver(name) is not None)
    world.next_driver(name).broken = {State.WARMING, State.READY}
    owner, number = world.owner(name).owner, world.owner(name).next
    world.settle()
    assert (
        f"{name}: incarnation {number} ended before it took over, because it failed: boom; "
        "read its log: `sluice logs h" in sentences(runbook)[Step.PREPARE]
    )
    assert f"/driver-{name}-{number}`" in sentences(runbook)[Step.PREPARE]
    assert runbook.results[Step.ABORT].ok
    assert world.owner(name).owner == owner
    assert {world.host_state(name) for name in world.agents} == {HostState.UP}
    world.check_settled()


def test_a_step_past_its_deadline_fails_and_names_the_missing_event(world):
    name = "counts"
    runbook = world.begin("d1", deadline=20.0, kind="drain", host=world.placement(name).driver)
    world.until(lambda: world.next_driver(name) is not None)
    world.next_driver(name).stuck = True
    world.settle()
    assert (
        "prepare did not end within 20 s: waiting for counts/2 to be ready (it is warming)"
        in sentences(runbook)[Step.PREPARE]
    )
    world.check_settled()


def test_a_lost_host_takes_its_slots_elsewhere_under_the_same_incarnation(world):
    placement = world.placement("enrich")
    lost = next(name for name in placement.slots if name != placement.driver)
    owner = world.owner("enrich").owner
    world.agents[lost].die()
    world.settle()
    for _ in range(12):
        world.tick()
    assert world.owner("enrich").owner == owner
    assert lost not in world.placement("enrich").hosts
    assert len(world.placement("enrich").slots) == 2


def test_unwanted_tiers_stop_nearest_the_end_first(world):
    world.want(running=False)
    order = []
    for _ in range(40):
        world.tick()
        order += [name for name in world.specs if world.owner(name).stopped and name not in order]
    assert order == ["counts", "outbound", "enrich", "entry"]
    assert not any(world.assigned(name) for name in world.agents)
    world.want(running=True)
    world.settle()


def test_with_little_room_a_tier_prepares_after_the_last_is_released():
    small = World(
        hosts=(host("h1", cpu=5), host("h2", cpu=4)),
        tiers=(tier("t0", Mode.BATCH, 0), tier("t1", Mode.REALTIME, 1)),
        rules=TIGHT,
    )
    small.want("t0")
    small.settle()
    assert small.placement("t0").driver == "h1"
    small.want("t1")
    small.settle()
    assert small.placement("t1").hosts == {"h2"}
    runbook = small.begin("d1", kind="drain", host="h2")
    small.settle()
    assert runbook.ok, sentences(runbook)
    assert "t1 will be prepared during the cut" in sentences(runbook)[Step.PREPARE]
    assert small.placement("t1").hosts == {"h1"}
    small.check_settled()


def test_an_abandoned_change_is_aborted_and_releases_the_lock(world):
    runbook = world.begin("d1", deadline=7200.0, kind="drain", host=world.placement("counts").driver)
    world.until(lambda: Step.PREPARE in runbook.results)
    world.until(lambda: Step.CUT in runbook.results)
    runbook.left, runbook.current = [], None
    world.settle()
    assert world.channel.exists("/changes/lock")
    world.now += 3601
    world.settle()
    assert any(
        "change d1 is aborted and its maintenance lock released: no step was posted for 60 min" in sentence
        for sentence in world.sentences
    )
    assert {world.host_state(name) for name in world.agents} == {HostState.UP}
    world.check_settled()


def test_steps_of_changes_that_have_not_begun_or_have_ended_are_answered(world):
    runbook = world.begin("d1", kind="drain", host="h1")
    runbook.left, runbook.current = [], Step.CUT
    runbook.post(Step.CUT)
    world.settle()
    assert sentences(runbook)[Step.CUT] == "change d1 has not begun; post its preflight first"
    assert sentences(runbook)[Step.ABORT] == "nothing to undo: change d1 never began, and cannot begin now"
    late = world.begin("d1", kind="drain", host="h1")
    world.settle()
    assert "change d1 has begun before and is aborted" in sentences(late)[Step.PREFLIGHT]


def test_a_dry_run_changes_nothing(world):
    before = dict(world.channel.nodes)
    runbook = world.begin("d1", kind="drain", host=world.placement("counts").driver)
    runbook.dry_run = True
    runbook.left = [Step.PREFLIGHT]
    world.settle()
    result = runbook.results[Step.PREFLIGHT]
    assert result.sentence.startswith("would do: counts → driver on")
    assert result.details["plan"]["moves"]
    changed = {path for path, node in world.channel.nodes.items() if before.get(path, (None,))[0] != node[0]}
    assert {path.split("/")[1] for path in changed if not path.endswith("/report")} == {"operations"}, (
        "only drivers write, with their reports"
    )


def test_a_slot_that_dies_on_a_cordoned_host_is_replaced_elsewhere(world):
    host_name = world.placement("enrich").slots[0]
    runbook = world.begin("d1", kind="drain", host=host_name)
    runbook.left = [Step.PREFLIGHT, Step.CORDON]
    world.until(lambda: Step.CORDON in runbook.results)
    owner = world.owner("enrich").owner
    world.agents[host_name].kill_slot("slot-enrich-1-0")
    world.until(lambda: host_name not in world.placement("enrich").slots)
    assert world.owner("enrich").owner == owner


def test_after_a_full_stop_tiers_wait_for_their_hosts_and_return_to_them(world):
    before = {name: world.placement(name) for name in world.specs}
    for name in world.specs:
        world.driver(name).stop()
    for agent in world.agents.values():
        agent.die()
    world.now += 3600
    world.absences.forget()
    for agent in world.agents.values():
        world.tick()
        world.tick()
        agent.register()
    world.settle()
    assert {name: world.placement(name) for name in world.specs} == before


def test_a_host_removed_from_the_channel_counts_as_lost(world):
    gone = world.placement("counts").driver
    world.agents.pop(gone).die()
    for root in ("hosts", "assignments", "observed"):
        world.channel.delete(f"/{root}/{gone}")
    world.settle()
    assert not any(gone in world.placement(name).hosts for name in world.specs)


def remove_from_channel(world, name):
    world.agents.pop(name).die()
    for root in ("hosts", "assignments", "observed"):
        world.channel.delete(f"/{root}/{name}")


def test_a_drain_ends_when_its_host_is_removed_from_the_channel(world):
    gone = world.placement("counts").driver
    runbook = world.begin("d1", kind="drain", host=gone)
    world.until(lambda: Step.VERIFY in runbook.results)
    remove_from_channel(world, gone)
    world.settle()
    assert runbook.ok, sentences(runbook)
    world.check_settled()


def test_a_write_off_ends_when_its_host_is_removed_from_the_channel(world):
    world.agents["h3"].die()
    world.settle()
    runbook = world.begin("w1", kind="write-off", host="h3")
    world.until(lambda: Step.PREFLIGHT in runbook.results)
    remove_from_channel(world, "h3")
    world.settle()
    assert runbook.ok, sentences(runbook)


def test_an_undone_reboot_does_not_run_when_the_agent_returns(world):
    runbook = world.begin("b1", kind="reboot", host="h2")
    world.until(lambda: Step.RELEASE in runbook.results)
    world.agents["h2"].die()
    world.tick()
    world.tick()
    runbook.post(Step.ABORT)
    world.until(lambda: runbook.ended)
    assert sentences(runbook)[Step.REBOOT] == "change b1 was aborted by test"
    world.agents["h2"].register()
    world.settle()
    assert world.agents["h2"].rebooted is None
    assert world.host_state("h2") is HostState.UP


def test_a_drained_host_that_does_not_return_does_not_count_as_rebooting(
    world,
):
    world.begin("d1", kind="drain", host="h2")
    world.settle()
    runbook = world.begin("b1", kind="reboot", host="h2")
    world.until(lambda: Step.RELEASE in runbook.results)
    world.agents["h2"].die()
    world.until(lambda: world.host_state("h2") is HostState.REBOOTING)
    runbook.post(Step.ABORT)
    world.until(lambda: runbook.ended)
    assert world.host_state("h2") is HostState.CORDONED


def test_an_undone_pause_keeps_tiers_paused_that_were_paused_before(world):
    world.begin("p1", kind="pause", tier="outbound")
    world.settle()
    second = world.begin("p2", kind="pause")
    world.until(lambda: world.state("counts") is State.PAUSED)
    assert second.abort_after(0)
    assert [name for name in world.specs if world.state(name) is State.PAUSED] == ["outbound"]


def test_a_tier_that_stops_late_has_the_same_grace(world):
    world.driver("counts").stuck = True
    world.want(running=False)
    world.until(lambda: world.owner("entry").stopped)
    states = {
        name: world.channel.read(paths.report(name, 1), IncarnationReport).value.state for name in world.specs
    }
    assert states == {
        "counts": State.RUNNING,
        "outbound": State.STOPPED,
        "enrich": State.STOPPED,
        "entry": State.STOPPED,
    }


def test_waiting_for_room_does_not_reset_a_tiers_failures(world):
    name = "counts"

    def tick_with_status():
        status = ControllerStatus(leader="c1", epoch=1, at=world.now, sentence="", tiers=world.statuses)
        world.channel.put(paths.CONTROLLER_STATUS, status)
        world.tick()

    def fail():
        driver = world.driver(name)
        if driver is not None:
            driver.broken = {State.RUNNING}
        tick_with_status()
        return world.statuses[name].failures == 3

    world.tick()
    for _ in range(100):
        if fail():
            break
    for host_name in world.agents:
        world.channel.put(paths.host_record(host_name), HostRecord(state=HostState.CORDONED, by="test"))
    for _ in range(30):
        tick_with_status()
    assert world.statuses[name].state == "waiting"
    assert "cannot start" in world.statuses[name].sentence
    assert (world.statuses[name].failures, world.statuses[name].error) == (3, "failed: boom")
    for host_name in world.agents:
        world.channel.put(paths.host_record(host_name), HostRecord())
    for _ in range(3):
        tick_with_status()
    assert world.incarnation(name, world.owner(name).owner).failures == 3
