"""Changes that wait for another person: asked, approved, refused, timed out, withdrawn."""

from dataclasses import replace

import pytest
from simulation.world import RULES, World, host, settled, tier

from sluice_ops.model import paths
from sluice_ops.model.approval import WAITED, Answer, ApprovalRule
from sluice_ops.model.change import SCALER, ChangeRecord, ChangeState, Operation, Result, Step
from sluice_ops.model.launch import Launch
from sluice_ops.model.resources import Capacity
from sluice_ops.model.scaler import Decision, Mode, ScalerRecord
from sluice_ops.model.share import Share
from sluice_ops.model.tier import Mode as TierMode
from sluice_ops.model.trail import Entry
from sluice_ops.operations.approvals import AnswerError, answer, waiting
from sluice_ops.operations.requests import (
    operation_id,
    read_journal,
    waited_seconds,
    waits_for_approval,
)
from sluice_ops.planning.changes.kinds import KINDS

ASKER, OTHER = "cli:anna", "cli:ben"


def asking(by=ASKER, rule=None, **spec):
    """Return a world in which a change waits, by default a pause of every tier."""
    world = settled()
    world.rules = replace(world.rules, approval=rule or ApprovalRule())
    runbook = world.begin("c1", by=by, **(spec or {"kind": "pause"}))
    world.tick()
    world.tick()
    return world, runbook


def record(world, name="c1"):
    return world.channel.read(paths.change(name), ChangeRecord).value


def told(world):
    """Return the outcomes in the trail with their persons, in the order of their entries."""
    nodes = [
        paths.trail(role, name)
        for role in ("controller", "operator")
        for name in world.channel.children(f"{paths.TRAIL}/{role}")
    ]
    nodes.sort(key=world.channel.made.get)
    entries = [world.channel.read(node, Entry).value for node in nodes]
    return [(entry.outcome, entry.by) for entry in entries if entry.change == "c1"]


def test_a_waiting_change_moves_nothing_and_leaves_the_lock():
    world, runbook = asking()
    assert record(world).state is ChangeState.WAITING
    assert not world.channel.exists(paths.LOCK)
    assert runbook.current is Step.PREFLIGHT
    assert waits_for_approval(world.channel, operation_id("c1", Step.PREFLIGHT))
    assert [change.id for change in waiting(world.channel)] == ["c1"]
    said = read_journal(world.channel, operation_id("c1", Step.PREFLIGHT))[-1].sentence
    assert "waits for the approval of another person: a pause of every tier always needs" in said
    assert "`sluice approve c1`" in said
    drain = world.begin("c2", kind="drain", host="h2")
    world.until(lambda: drain.ended)
    assert drain.ok
    assert record(world).state is ChangeState.WAITING


def test_an_approved_change_begins_and_the_trail_has_both_persons():
    world, runbook = asking()
    for _ in range(400):
        world.tick()
    answer(world.channel, "c1", OTHER, approved=True)
    world.until(lambda: runbook.ended)
    assert runbook.ok
    assert record(world).asked.approved_by == OTHER
    preflight = runbook.results[Step.PREFLIGHT]
    assert preflight.sentence.startswith("approved by cli:ben; planned: ")
    assert preflight.details[WAITED] >= 400
    assert told(world) == [
        ("asked", ASKER),
        ("approved", OTHER),
        ("begun", ASKER),
        ("done", ASKER),
    ]


def test_a_refused_change_ends_with_the_reason():
    world, runbook = asking()
    answer(world.channel, "c1", OTHER, approved=False, why="the report runs until six")
    world.until(lambda: runbook.ended)
    refused = "cli:ben refused it, and nothing was changed: the report runs until six"
    assert runbook.results[Step.PREFLIGHT].sentence == refused
    assert record(world).state is ChangeState.ABORTED
    assert told(world) == [("asked", ASKER), ("refused", OTHER), ("refused", ASKER)]
    assert not world.wanted("counts").paused


def test_a_change_that_nobody_answers_ends_as_refused():
    world, runbook = asking(rule=ApprovalRule(within_seconds=100))
    world.tick(90)
    world.tick()
    assert not runbook.ended
    world.tick(20)
    world.until(lambda: runbook.ended)
    assert "nobody approved it within 100 s" in runbook.results[Step.PREFLIGHT].sentence
    assert told(world) == [("asked", ASKER), ("refused", ASKER)]


def test_the_person_who_asked_cannot_approve():
    world, _ = asking()
    with pytest.raises(AnswerError, match="another person has to approve it"):
        answer(world.channel, "c1", ASKER, approved=True)
    with pytest.raises(AnswerError, match="another person has to approve it"):
        answer(world.channel, "c1", "airflow:anna", approved=True)
    assert record(world).state is ChangeState.WAITING


def test_an_approval_by_the_requester_past_the_command_is_refused():
    world, runbook = asking()
    world.channel.put(paths.approval("c1"), Answer(approved=True, by="airflow:anna", at=1.0))
    world.until(lambda: runbook.ended)
    assert "another person has to approve it" in runbook.results[Step.PREFLIGHT].sentence
    assert not world.wanted("counts").paused


def test_a_change_is_answered_once():
    world, _ = asking()
    answer(world.channel, "c1", OTHER, approved=True)
    with pytest.raises(AnswerError, match="was answered, or has ended"):
        answer(world.channel, "c1", "cli:eve", approved=False, why="no")
    with pytest.raises(AnswerError, match="no change is named 'c9'"):
        answer(world.channel, "c9", OTHER, approved=True)
    world.tick()
    with pytest.raises(AnswerError, match="does not wait for approval: it is active"):
        answer(world.channel, "c1", OTHER, approved=True)


def test_an_abort_withdraws_a_waiting_change_and_undoes_nothing():
    world, _ = asking(kind="drain", host="h2", rule=ApprovalRule(always=("drain",)))
    drain = world.begin("c2", kind="cordon", host="h2")
    world.until(lambda: drain.ended)
    world.runbooks[0].abort()
    world.until(lambda: record(world).state is ChangeState.ABORTED)
    assert str(world.host_state("h2")) == "cordoned"
    assert told(world) == [("asked", ASKER), ("refused", ASKER), ("abort", ASKER)]


def test_an_approved_change_waits_for_the_lock_of_another():
    world, runbook = asking()
    drain = world.begin("c2", kind="drain", host="h2")
    world.until(lambda: drain.current is Step.PREPARE)
    answer(world.channel, "c1", OTHER, approved=True)
    world.until(lambda: runbook.ended and drain.ended)
    assert drain.ok
    assert runbook.ok


def test_a_plan_that_has_grown_since_its_approval_is_refused():
    rule = ApprovalRule(always=("drain",))
    world, runbook = asking(kind="drain", host="h3", rule=rule)
    before = record(world).asked.tiers
    moved = next(name for name in ("entry", "enrich", "outbound") if name not in before)
    world.rules = replace(world.rules, approval=None)
    migrate = world.begin("c2", kind="migrate", tier=moved, to="h3")
    world.until(lambda: migrate.ended)
    assert migrate.ok
    world.rules = replace(world.rules, approval=rule)
    answer(world.channel, "c1", OTHER, approved=True)
    world.until(lambda: runbook.ended)
    said = runbook.results[Step.PREFLIGHT].sentence
    assert f"the plan has grown since cli:ben approved it: it would also touch {moved}" in said
    assert record(world).state is ChangeState.ABORTED


def test_a_dry_run_says_that_the_change_would_wait():
    world = settled()
    world.rules = replace(world.rules, approval=ApprovalRule())
    runbook = world.begin("c1", kind="pause")
    runbook.dry_run, runbook.left = True, [Step.PREFLIGHT]
    world.until(lambda: runbook.ended)
    result = runbook.results[Step.PREFLIGHT]
    assert result.ok
    assert "(it would wait for the approval of another person: a pause of every tier" in result.sentence
    assert [*result.details["approval"]] == ["always"]
    assert told(world) == []


def test_a_change_of_the_scaler_waits_and_holds_no_other_change_back():
    world = settled()
    rule = ApprovalRule(always=("scale",))
    world.rules = replace(world.rules, approval=rule)
    decision = Decision(mode=Mode.ACT, slots=2, wanted=3, reason="busy", since=world.wall())
    world.channel.put(paths.SCALER, ScalerRecord(decisions={"enrich": decision}))
    world.until(lambda: waiting(world.channel))
    (asked,) = waiting(world.channel)
    assert (asked.by, asked.spec.tier) == (SCALER, "enrich")
    world.tick(700)
    world.tick()
    assert [change.id for change in waiting(world.channel)] == [asked.id]
    answer(world.channel, asked.id, OTHER, approved=True)
    world.until(lambda: record(world, asked.id).state is ChangeState.DONE)
    assert len(world.placement("enrich").slots) == 3


def test_the_deadline_counts_the_time_after_the_approval_only():
    world, runbook = asking(deadline=60.0, kind="pause")
    world.tick(200)
    answer(world.channel, "c1", OTHER, approved=True)
    world.tick()
    posted = world.channel.read(paths.operation(operation_id("c1", Step.PREFLIGHT)), Operation).value
    assert world.channel.read(paths.result(posted.id), Result).value.ok
    assert 50.0 <= record(world).deadline_seconds <= 60.0
    world.until(lambda: runbook.ended)
    assert runbook.ok


LAUNCH = Launch(instances=1, per_hour=0.5, could_cost=14.4, spent=6.1, budget=12.0)
"""A launch over the budget of the day."""
OVER = "1 instance could cost 14.40 until midnight UTC; the day has spent 6.10 of 12.00"


def bursting(rule=None, launch=LAUNCH, by=ASKER, **rules):
    """Return a world in which a burst asks before its instances are launched."""
    world = World(
        hosts=(host("h1", cpu=2.5),),
        tiers=(tier("near", TierMode.BATCH, 0),),
        rules=replace(RULES, shares={"near": Share(minimum=1, target=2, maximum=8)}, shifts={}, partitions=8),
    )
    world.bring_up()
    capacity = Capacity(cpu=4, memory=8192)
    approval = {"approval": rule or ApprovalRule(), **rules}
    world.rules = replace(world.rules, instance=capacity, **approval)
    burst = world.begin("c1", by=by, kind="burst", tier="near", k=2, launch=launch)
    burst.left = [Step.APPROVAL]
    for _ in range(3):
        world.tick()
    return world, burst


def launch_and_go_on(world, burst):
    """Add the host of the launched instance, and carry out the other steps."""
    world.add_host(host("e1", zone="ec2", cpu=4))
    burst.left = [*KINDS["burst"].steps]
    world.until(lambda: burst.ended)


def test_a_burst_over_the_budget_waits_before_the_launch_and_asks_once():
    world, burst = bursting()
    assert (record(world).state, burst.current) == (ChangeState.WAITING, Step.APPROVAL)
    assert record(world).asked.reasons == {"cost": OVER}
    assert record(world).asked.plan.startswith("1 instance would be launched, for 0.5 an hour; then near ")
    for _ in range(400):
        world.tick()
    answer(world.channel, "c1", OTHER, approved=True)
    world.until(lambda: burst.ended)
    permission = burst.results[Step.APPROVAL]
    assert permission.sentence == "approved by cli:ben; instances may be launched"
    assert not world.channel.exists(paths.LOCK)
    assert waiting(world.channel) == [], "nobody has to answer any more"
    waited = waited_seconds(world.channel, "c1")
    assert waited >= 400
    for _ in range(60):
        world.tick()
    launch_and_go_on(world, burst)
    assert burst.ok
    assert len(world.placement("near").slots) == 4
    assert waited_seconds(world.channel, "c1") == waited
    assert told(world) == [
        ("asked", ASKER),
        ("approved", OTHER),
        ("begun", ASKER),
        ("done", ASKER),
    ]


@pytest.mark.parametrize(
    ("approved", "sentence"),
    [
        (False, "cli:ben refused it, and no instance was launched: no money"),
        (None, "nobody approved it within 1000 s, so it ended as refused, and no instance was launched"),
    ],
)
def test_a_burst_without_approval_may_launch_nothing(approved, sentence):
    world, burst = bursting(ApprovalRule(within_seconds=1000))
    if approved is None:
        world.tick(1000)
    else:
        answer(world.channel, "c1", OTHER, approved=approved, why="no money")
    world.until(lambda: burst.ended)
    assert burst.results[Step.APPROVAL].sentence.startswith(sentence)
    assert record(world).state is ChangeState.ABORTED
    assert told(world)[-1] == ("refused", ASKER)
    launch_and_go_on(world, burst)
    assert "has begun before and is aborted" in burst.results[Step.PREFLIGHT].sentence


def test_a_burst_within_the_budget_may_launch_at_once():
    world, burst = bursting(launch=LAUNCH.model_copy(update={"budget": 30.0}))
    assert burst.results[Step.APPROVAL].ok
    assert not world.channel.exists(paths.change("c1"))
    launch_and_go_on(world, burst)
    assert burst.ok
    assert told(world) == [("begun", ASKER), ("done", ASKER)]


def test_every_condition_of_the_rule_asks_before_the_launch():
    world, _ = bursting(ApprovalRule(tiers=1), launch=None)
    assert [*record(world).asked.reasons] == ["tiers"]
    world, _ = bursting(ApprovalRule(cost_per_day=5.0), LAUNCH.model_copy(update={"budget": None}))
    assert "the day has spent 6.10 of 5.00" in record(world).asked.why


def test_where_nobody_may_approve_a_burst_over_the_budget_is_refused():
    world, burst = bursting(approval=None)
    assert burst.ended
    said = burst.results[Step.APPROVAL].sentence
    assert said.startswith(f"{OVER}. That limit is ec2.max_cost_per_day, and with `approval: off`")
    assert told(world) == [("refused", ASKER)]


def test_an_approved_burst_that_nobody_continues_ends_at_its_deadline():
    world, burst = bursting()
    answer(world.channel, "c1", OTHER, approved=True)
    world.until(lambda: burst.ended)
    world.tick(200)
    world.tick()
    assert record(world).state is ChangeState.WAITING
    world.tick(200)
    world.tick()
    assert record(world).state is ChangeState.ABORTED


def test_an_abort_withdraws_a_burst_that_was_approved():
    world, burst = bursting()
    answer(world.channel, "c1", OTHER, approved=True)
    world.until(lambda: burst.ended)
    burst.abort()
    world.until(lambda: record(world).state is ChangeState.ABORTED)
    launch_and_go_on(world, burst)
    assert not burst.results[Step.PREFLIGHT].ok


def test_two_refused_steps_of_one_change_are_one_entry():
    world, _ = bursting(approval=None)
    burst = world.begin("c2", kind="burst", tier="near", k=2, launch=LAUNCH)
    burst.post(Step.PREFLIGHT)
    burst.post(Step.APPROVAL)
    burst.left, burst.current = [], Step.APPROVAL
    world.until(lambda: burst.ended)
    assert world.channel.exists(paths.result(operation_id("c2", Step.PREFLIGHT)))
    entries = [name for name in world.channel.children(f"{paths.TRAIL}/controller") if "c2.refused" in name]
    assert len(entries) == 1


def test_only_a_burst_has_the_step_approval():
    world = settled()
    runbook = world.begin("c1", kind="cordon", host="h2")
    runbook.left = [Step.APPROVAL]
    world.until(lambda: runbook.ended)
    assert "cordon has no step approval" in runbook.results[Step.APPROVAL].sentence
