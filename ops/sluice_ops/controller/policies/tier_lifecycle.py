"""The life of a tier: started when requested, restarted when its driver dies, handed over, stopped.

Every step is derived from the snapshot alone, so that the next leader can continue. Start with
`step`.
"""

from collections.abc import Callable, Iterable

from sluice_ops.controller.pass_state import Draft
from sluice_ops.controller.policies import (
    batch,
    health,
    resize_in_place,
    rollback,
    slot_repair,
    spares,
    standby,
    stop_order,
    timing,
)
from sluice_ops.controller.policies.capacity import cluster_of_draft
from sluice_ops.model.change import ChangeState
from sluice_ops.model.ids import HostName, Incarnation, TierName
from sluice_ops.model.incarnation import (
    IncarnationReport,
    IncarnationSpec,
    OwnerRecord,
    Phase,
    Placement,
    State,
)
from sluice_ops.model.resources import Quantum
from sluice_ops.model.status import TierState, TierStatus
from sluice_ops.model.tier import TierSpec
from sluice_ops.model.wording import counted, listed
from sluice_ops.planning.placement.cluster import Cluster, Hosts, RefusedError, units
from sluice_ops.planning.placement.shares import target
from sluice_ops.planning.placement.solver import Placed
from sluice_ops.planning.shortage.fitting import attempts, place_most
from sluice_ops.snapshot.view import TierView

GIVE_UP = 5
"""Failures in a row after which a tier is given up until its wanted attempt is raised."""
LONGEST_WAIT = 30.0
FEW_AWAY = 0.1
"""A tier starts without its silent hosts up to this share of its hosts; else it waits."""
STOP_SECONDS = 60.0
"""After this time, the agent ends the driver of a stopped tier that has not ended by itself."""


def step(draft: Draft, tier: TierView) -> None:
    """Take one tier one step further, and write its status."""
    name = tier.spec.name
    if not draft.wanted[name].running:
        status = _stop(draft, name)
    elif draft.owner_spec(name) is None:
        status = _start(draft, tier, "cold start", *_last_failures(draft, name))
    else:
        status = _maintain(draft, tier)
    spares.set_active(draft, name)
    _retire_stale(draft, name)
    draft.statuses[name] = status


def _last_failures(draft: Draft, tier: TierName) -> tuple[int, str | None]:
    """Return the failures in a row and the last error of a tier that waits for room.

    Both start again when a person starts the tier again.
    """
    report = None if draft.view.status is None else draft.view.status.tiers.get(tier)
    last = draft.incarnations[tier].get(draft.owners[tier].owner or Incarnation(0))
    if (
        report is None
        or report.state is not TierState.WAITING
        or last is None
        or last.attempt < draft.wanted[tier].attempt
    ):
        return 0, None
    return report.failures, report.error


def _stop(draft: Draft, tier: TierName) -> TierStatus:
    record, wanted = draft.owners[tier], draft.wanted[tier]
    held = draft.unretired(tier)
    if not record.stopped and (record.owner is not None or held):
        before = stop_order.tier_before(draft, tier)
        if before is not None:
            return TierStatus(
                state=TierState.RUNNING,
                sentence=f"is stopped after {before}, which is nearer the pipeline's end",
            )
        draft.update_owner(tier, stopped=True, next=None, standby=None, phase=Phase.STEADY)
        # the time that the tier has for its stop begins with its turn
        wanted = draft.wanted[tier] = wanted.model_copy(update={"at": draft.now})
        timing.stop_begins(draft, tier)
        draft.log(f"{tier} stops after its last commit: stop requested by {wanted.by}")
    for spec in held:
        if health.has_ended(draft, tier, spec.incarnation) or draft.age(wanted.at) > STOP_SECONDS:
            draft.retire(tier, spec.incarnation)
    if draft.unretired(tier):
        return TierStatus(state=TierState.STOPPING, sentence="stops after its last commit")
    timing.note_stop(draft, tier)
    return TierStatus(state=TierState.STOPPED, sentence="is stopped as requested")


def _start(
    draft: Draft, tier: TierView, reason: str, failures: int = 0, error: str | None = None
) -> TierStatus:
    """Start a tier cold: the incarnation owns the tier at once, without a handover."""
    name = tier.spec.name
    before = draft.owners[name].owner
    old = None if before is None else draft.incarnations[name].get(before)
    held = frozenset() if old is None else draft.braked & old.placement.hosts
    if held:
        sentence = f"waits for {listed(sorted(held))}: many hosts were lost at once, so nothing is moved"
        return TierStatus(state=TierState.WAITING, sentence=sentence, failures=failures, error=error)
    waiting_for = _hosts_to_wait_for(draft, old)
    if waiting_for:
        agents = "its agent is" if len(waiting_for) == 1 else "their agents are"
        sentence = f"waits until {listed(waiting_for)} is back or counts as lost: {agents} silent"
        return TierStatus(state=TierState.WAITING, sentence=sentence, failures=failures, error=error)
    for spec in draft.unretired(name):
        draft.retire(name, spec.incarnation)
    now, place = cluster_of_draft(draft), None if old is None else old.placement
    aim = target(name, now.rules)
    try:
        placement, placed = place_most(tier.spec, aim, place, now)
    except RefusedError as refused:
        tried = (_make_room(draft, tier.spec, aim.to, attempt) for attempt in attempts(tier.spec, aim, place))
        waits = next((room for room in tried if room is not None), None)
        if waits is None:
            draft.shortage.needy.append(name)
        sentence = f"cannot start: {refused}" if waits is None else f"starts when it has the room of {waits}"
        return TierStatus(state=TierState.WAITING, sentence=sentence, failures=failures, error=error)
    number = draft.begin(name, placement, reason, failures, counted_hosts=placed.hosts)
    if _is_requested(draft, name, old):
        timing.start_begins(draft, name, number)
    elif old is not None:
        timing.carry_start_over(draft, name, old.incarnation, number)
        after_stop = health.state(draft, name, old.incarnation) is State.STOPPED
        draft.update_incarnation(name, number, after_stop=after_stop)
    draft.make_owner(name, number)
    draft.update_owner(name, stopped=False, paused=draft.wanted[name].paused)
    short = (
        [f"the tier has {len(placement.slots)} of its {counted(aim.k, 'slot')}: room is short"]
        if len(placement.slots) < aim.k
        else []
    )
    notes = "".join(f"; {note}" for note in (*placed.notes, *short))
    draft.log(f"{name}: incarnation {number} starts, {placement.in_words} ({reason}){notes}")
    return TierStatus(
        state=TierState.STARTING,
        sentence=f"incarnation {number} starts: {reason}",
        failures=failures,
        error=error,
    )


def _is_requested(draft: Draft, tier: TierName, old: IncarnationSpec | None) -> bool:
    """Tell whether a person asked for this start.

    The tier never ran, was stopped, or was given up and is started again.
    """
    if old is None or draft.owners[tier].stopped:
        return True
    return old.failures >= GIVE_UP - 1 and old.attempt < draft.wanted[tier].attempt


def _make_room(
    draft: Draft, spec: TierSpec, to: str | None, attempt: Callable[[Cluster], tuple[Placement, Placed]]
) -> str | None:
    """Take slots back from `batch` for a tier that is to start.

    Return what the tier waits for; None if slots of `batch` would not help.
    """

    def placed(after: Cluster) -> tuple[Iterable[tuple[HostName, Quantum]], Hosts]:
        placement, result = attempt(after)
        return units(spec, placement), result.hosts

    return batch.make_room_for(draft, spec.name, to, placed)


def _hosts_to_wait_for(draft: Draft, old: IncarnationSpec | None) -> list[HostName]:
    """Name the silent hosts to wait for, of the tier's last hosts, or of all.

    After a power failure, the first host that is back must not get all units. On many hosts, a few
    are always silent; then the others are enough.
    """
    hosts = draft.view.hosts.keys() if old is None else old.placement.hosts
    waiting_for = [name for name in draft.silent_hosts if name in hosts]
    return sorted(waiting_for) if len(waiting_for) > FEW_AWAY * len(hosts) else []


def _maintain(draft: Draft, tier: TierView) -> TierStatus:
    """Keep a tier with an owner running, and take its changes a step further."""
    name = tier.spec.name
    record = draft.owners[name]
    owner = record.owner or Incarnation(0)
    end = health.death(draft, name, owner)
    _drop_dead_next(draft, name)
    if end is not None:
        return _recover(draft, tier, owner, end)
    health.note_health(draft, name, owner)
    timing.note_start(draft, name, owner)
    short = slot_repair.replace_lost_slots(draft, tier)
    back = rollback.advance(draft, name)
    if draft.owners[name].phase is Phase.CUT:
        _complete_handover(draft, tier)
    waiting = stop_order.pause_or_resume(draft, name) or stop_order.pause_workers(draft, name)
    beside = standby.maintain(draft, tier)
    return _status(draft, name, short or back or waiting, beside)


def _status(draft: Draft, tier: TierName, waiting: str | None, beside: str | None) -> TierStatus:
    record = draft.owners[tier]
    number = record.owner or Incarnation(0)
    spec = draft.incarnations[tier][number]
    reported_state = health.state(draft, tier, number)
    if reported_state is State.RUNNING and not record.paused:
        state = TierState.RUNNING
    elif reported_state is State.PAUSED:
        state = TierState.PAUSED
    elif reported_state is State.RUNNING:
        state = TierState.STOPPING
    else:
        state = TierState.STARTING
    under_way = (
        ""
        if record.next is None
        else f", incarnation {record.next} {'takes over' if record.phase is Phase.CUT else 'is prepared'}"
    )
    idle = _idle(draft, tier, len(spec.placement.slots))
    report = health.report(draft, tier, number)
    waiting_for = f", waits: {report.away}" if report is not None and report.away is not None else ""
    sentence = (waiting or f"incarnation {number} is {reported_state}{waiting_for}{idle}{under_way}") + (
        f"; {beside}" if beside else ""
    )
    return TierStatus(
        state=state, sentence=sentence, failures=spec.failures if state is not TierState.RUNNING else 0
    )


def _idle(draft: Draft, tier: TierName, workers: int) -> str:
    """Describe the workers without tasks; empty if there are none."""
    going = resize_in_place.leaving(draft, tier)
    resting = set(draft.owners[tier].paused_workers).intersection(draft.workers(tier))
    paused, leaves = len(resting.difference(going)), len(resting.intersection(going))
    report = health.report(draft, tier, draft.owners[tier].owner or Incarnation(0))
    waiting = () if report is None or report.spare_workers is None else report.spare_workers
    spare = len(draft.living_workers(tier).intersection(waiting))
    counts = ((paused, "paused"), (leaves, "leaving"), (spare, "spare"))
    return "".join(
        f", {count} of its {counted(workers, 'worker')} {state}" for count, state in counts if count
    )


def _drop_dead_next(draft: Draft, tier: TierName) -> None:
    """Drop a next incarnation that has died, or that no active change or rollback needs."""
    record = draft.owners[tier]
    if record.next is None:
        return
    end = health.death(draft, tier, record.next)
    wanted = any(
        change.state is ChangeState.ACTIVE
        and record.next in {change.incarnations.get(tier), change.canaries.get(tier)}
        for change in draft.changes.values()
    )
    if end is None and (wanted or rollback.is_under_way(draft, tier)):
        return
    reason = "its change has ended" if end is None else f"it {end.reason}"
    draft.deaths[tier, record.next] = reason
    draft.log(f"{tier}: incarnation {record.next} is dropped, {record.owner} goes on ({reason})")
    draft.drop_next(tier)


def _recover(draft: Draft, tier: TierView, owner: Incarnation, end: health.Death) -> TierStatus:
    """Replace a dead owner: by the standby, the next incarnation, or a cold start."""
    name = tier.spec.name
    record = draft.owners[name]
    why = f"incarnation {owner} {end.reason}"
    health.note_hang(draft, name, owner, end)
    taken = standby.take_over(draft, name, owner, why)
    if taken is not None:
        return taken
    if record.next is not None:
        draft.retire(name, owner)
        draft.make_owner(name, record.next)
        draft.log(f"{name}: {why}; incarnation {record.next}, which was being prepared, takes over at once")
        return TierStatus(
            state=TierState.STARTING,
            sentence=f"incarnation {record.next} takes over: {why}",
            error=end.reason,
        )
    failures = health.failures_after(draft, name, owner, end)
    if failures >= GIVE_UP:
        sentence = (
            f"is given up after {failures} failures in a row: {why}; correct the cause, then: "
            f"sluice start {name}"
        )
        return TierStatus(state=TierState.FAILED, sentence=sentence, failures=failures, error=end.reason)
    wait = 0.0 if failures <= 1 or end.blameless else min(LONGEST_WAIT, 2.0 ** (failures - 2))
    if end.age < wait:
        sentence = f"starts again {wait:.0f} s after failure {failures}: {why}"
        return TierStatus(state=TierState.WAITING, sentence=sentence, failures=failures, error=end.reason)
    return _start(draft, tier, why, failures, end.reason)


def _complete_handover(draft: Draft, tier: TierView) -> None:
    """Make the next incarnation the owner when the reports allow it; this write ends the gap."""
    name = tier.spec.name
    record = draft.owners[name]
    if record.owner is None or record.next is None or not _is_level(draft, tier, record):
        return
    draft.make_owner(name, record.next)
    draft.log(f"{name}: incarnation {record.next} owns the tier, incarnation {record.owner} stops")


def _is_level(draft: Draft, tier: TierView, record: OwnerRecord) -> bool:
    name = tier.spec.name
    old = health.report(draft, name, record.owner or Incarnation(0))
    new = health.report(draft, name, record.next or Incarnation(0))
    if old is None or new is None:
        return False
    if record.paused:
        return old.state is State.PAUSED and new.state is State.READY
    return new.state is State.RUNNING and (new.caught_up or _is_sink_away(tier.spec, old, new))


def _is_sink_away(spec: TierSpec, old: IncarnationReport, new: IncarnationReport) -> bool:
    """Tell whether the sink takes nothing from either incarnation, so that no turn will come.

    The ledger says where the next batch begins, whichever incarnation writes it.
    """
    is_of_sink = not spec.outputs and not spec.state
    return is_of_sink and old.away is not None and new.away is not None


def _retire_stale(draft: Draft, tier: TierName) -> None:
    """Retire incarnations that are neither owner, next nor standby.

    The former owner stays until the active change has verified and released it.
    """
    record = draft.owners[tier]
    if record.stopped or record.owner is None:
        return
    held_by_change = any(
        change.state is ChangeState.ACTIVE and tier in change.incarnations
        for change in draft.changes.values()
    )
    for spec in draft.unretired(tier):
        stale = spec.incarnation not in {record.owner, record.next, record.standby}
        if stale and (not held_by_change or spec.incarnation > record.owner):
            draft.retire(tier, spec.incarnation)
