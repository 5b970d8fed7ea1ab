"""The step release: take old slots away, accept the change's settings, free the lock."""

from collections.abc import Sequence
from dataclasses import replace

from sluice_ops.controller.outcome import Done, Failed, Outcome, Waiting
from sluice_ops.controller.pass_state import Draft
from sluice_ops.controller.policies.capacity import cluster_of_draft
from sluice_ops.model.assignment import HostState
from sluice_ops.model.change import ChangeRecord, ChangeSpec, ChangeState, Operation, Step
from sluice_ops.model.ids import HostName
from sluice_ops.model.status import TierState
from sluice_ops.model.wording import listed
from sluice_ops.planning.changes.kinds import KINDS


def release(draft: Draft, operation: Operation) -> Outcome:
    """Release what was handed over, and end the change unless a reboot follows."""
    change = draft.changes[operation.change]
    kind = KINDS[change.spec.kind]
    for move in change.plan.moves:
        tier = move.tier
        if draft.owner_spec(tier) is not None and draft.owners[tier].owner != change.incarnations.get(tier):
            return Failed(
                f"{tier} has not been handed over: incarnation {draft.owners[tier].owner} still owns it; "
                "post its cut first"
            )
        for spec in draft.unretired(tier):
            if spec.incarnation < (draft.owners[tier].owner or 0):
                draft.retire(tier, spec.incarnation)
    if kind.sets_tier:
        refused = _accept(draft, change)
        if refused is not None:
            return refused
    layers = kind.layers(change.spec, cluster_of_draft(draft), change.by, change.started_at)
    draft.rules = replace(draft.rules, layers=layers)
    if kind.empties_host:
        waits = [waiting for host in change.spec.named_hosts if (waiting := _drained(draft, host))]
        if waits:
            return Waiting("; ".join(waits))
    if kind.steps[-1] is Step.RELEASE:
        draft.end_change(change.id, ChangeState.DONE)
    moved = ", ".join(move.tier for move in change.plan.moves)
    empty = f"; {_are(change.spec.named_hosts)} drained and empty" if kind.empties_host else ""
    new = f"; {change.spec.tier} {_accepted(change.spec)} from now on" if kind.sets_tier else ""
    return Done(f"released: {moved or 'no tier had to move'}{empty}{new}")


def _accept(draft: Draft, change: ChangeRecord) -> Failed | None:
    """Write the owner's release or partitions as accepted: later incarnations start with them."""
    spec, tier = change.spec, change.spec.tier
    if tier is None or tier not in draft.wanted:
        return Failed(f"{tier} is no longer published")
    owning, failed = draft.owner_spec(tier), draft.statuses[tier].state is TierState.FAILED
    if (
        owning is not None
        and not failed
        and (owning.release if spec.release else owning.partitions) != (spec.release or spec.partitions)
    ):
        how = f"release {owning.release}" if spec.release else f"its state in {owning.partitions} partitions"
        return Failed(f"{tier} was started with {how} in between; {spec.kind} the tier again")
    wanted = draft.wanted[tier]
    accepted = {"release": spec.release or wanted.release, "partitions": spec.partitions or wanted.partitions}
    draft.wanted[tier] = wanted.model_copy(update={**accepted, "attempt": wanted.attempt + failed})
    return None


def _accepted(spec: ChangeSpec) -> str:
    return (
        f"starts from release {spec.release}"
        if spec.release
        else f"has its state in {spec.partitions} partitions"
    )


def _are(hosts: Sequence[HostName]) -> str:
    return f"{listed(hosts)} {'is' if len(hosts) == 1 else 'are'}"


def _drained(draft: Draft, host: HostName) -> str | None:
    """Mark a host as drained if it is empty; otherwise say what is left on it."""
    left = left_on(draft, host)
    if left:
        return f"waiting until {host} is empty: {left}"
    if host in draft.records:  # otherwise it was taken off the channel in between
        draft.set_host_state(host, HostState.DRAINED, draft.records[host].by)
    return None


def left_on(draft: Draft, host: HostName) -> str:
    """Name what a host still holds: what is assigned to it, or else what its agent reports."""
    held = [
        f"{tier}/{spec.incarnation}"
        for tier, specs in draft.incarnations.items()
        for spec in specs.values()
        if not spec.retired and host in spec.placement.hosts
    ]
    held += [f"batch slot {number}" for number, at in draft.batch.items() if at == host]
    view = draft.host(host)
    if not held and view is not None and view.live and view.observed is not None:
        held = [str(unit.id) for unit in view.observed.units]
    return ", ".join(held)
