"""When a burst, or a new or rebooted host, is ready: a worker on each host has processed records
(decisions 78, 86 and 102).

A tier that is handed over has to show this in the warm-up of its next incarnation, before the
handover. In place, the workers that joined have to show it. Where no records flow, the driver gives
the workers an empty task, and the sentence says so.
"""

from sluice_ops.controller.outcome import Failed, Outcome, Waiting
from sluice_ops.controller.pass_state import Draft
from sluice_ops.controller.policies import health
from sluice_ops.controller.policies.capacity import cluster_of_draft
from sluice_ops.controller.policies.resize_in_place import JOINING_KEY
from sluice_ops.model.assignment import slot_ids
from sluice_ops.model.change import ChangeRecord
from sluice_ops.model.ids import HostName, Incarnation, TierName, UnitId
from sluice_ops.model.incarnation import IncarnationReport
from sluice_ops.model.wording import listed
from sluice_ops.planning.changes.kinds import KINDS
from sluice_ops.planning.changes.plan import aftermath
from sluice_ops.planning.placement.shares import target

READY_SECONDS = 60.0
"""How long a burst waits for the first records of its workers, once these can take tasks."""


def why_not_ready(draft: Draft, change: ChangeRecord, tier: TierName, number: Incarnation) -> Outcome | None:
    """Return what a burst waits for, or why it has failed; None if it is ready, or no burst.

    `number` is the incarnation that has the workers of the burst, or will take the tier over.
    """
    report = health.report(draft, tier, number)
    if report is None or report.first_tasks is None:
        return None
    missing = {
        host: workers
        for host, workers in _workers_by_host(draft, change, tier, number).items()
        if report.first_tasks.keys().isdisjoint(workers)
    }
    if not missing:
        return None
    if _seconds_able(draft, change, tier, report) < READY_SECONDS:
        awaited = ", ".join(f"{' or '.join(workers)} on {host}" for host, workers in missing.items())
        return Waiting(f"waiting until {awaited} has processed records")
    host, (worker, *_) = next(iter(missing.items()))
    spec = change.spec
    if KINDS[spec.kind].proves_host:
        are = "is" if len(missing) == 1 else "are"
        undone = f"{listed(missing)} {are} cordoned, and {tier} goes on as before"
        again = f"sluice return {host} && sluice canary {host}"
    else:
        undone = f"the {spec.kind} is undone, and {tier} goes on without it"
        again = f"sluice {spec.kind} {tier}{'' if spec.k is None else f' {spec.k}'}"
    return Failed(
        f"the workers of {tier} on {listed(missing)} can take tasks, but processed no record in "
        f"{READY_SECONDS:.0f} s: they do not reach Kafka, or Spark gave them no partition; {undone}; "
        f"read the log: `sluice logs {host}/{worker}`; then try again: `{again}`"
    )


def proof(draft: Draft, change: ChangeRecord) -> str | None:
    """Return which worker has processed records on each host of a burst; None if no burst."""
    moved = [move.tier for move in change.plan.moves]
    tier = moved[0] if moved and KINDS[change.spec.kind].proves_host else change.spec.tier
    owner = None if tier is None or tier not in draft.owners else draft.owners[tier].owner
    if tier is None or owner is None:
        return None
    return "; ".join(proofs(draft, change, tier, owner).values()) or None


def proofs(draft: Draft, change: ChangeRecord, tier: TierName, number: Incarnation) -> dict[HostName, str]:
    """Return for each host of a burst or a canary which worker has processed records there.

    Empty if there is none, or if the driver is of an older version. A canary that has processed
    nothing is left out.
    """
    report = health.report(draft, tier, number)
    if report is None or report.first_tasks is None:
        return {}
    is_canary = KINDS[change.spec.kind].proves_host
    named = _canary_did if is_canary else _burst_did
    first = {
        host: max((report.first_tasks.get(worker, -1), worker) for worker in workers)
        for host, workers in _workers_by_host(draft, change, tier, number).items()
    }
    return {
        host: named(host, worker, records)
        for host, (records, worker) in first.items()
        if records >= 0 or not is_canary
    }


def _workers_by_host(
    draft: Draft, change: ChangeRecord, tier: TierName, number: Incarnation
) -> dict[HostName, list[UnitId]]:
    """Return the workers of a burst, by its living hosts; in place, those that joined.

    Of a canary: a worker on each of its hosts.
    """
    spec, kind = draft.incarnations[tier].get(number), KINDS[change.spec.kind]
    if spec is None or not (kind.launches or kind.proves_host):
        return {}
    if kind.proves_host:
        return {
            host: [worker]
            for worker, host in zip(
                slot_ids(tier, number, len(spec.placement.slots)), spec.placement.slots, strict=True
            )
            if host in change.spec.named_hosts
        }
    now = aftermath(change.spec, cluster_of_draft(draft))
    place = target(tier, now.rules).extra_to
    joined = change.receipts.get(tier, {}).get(JOINING_KEY)
    by_host: dict[HostName, list[UnitId]] = {}
    slots = spec.placement.slots
    for worker, host in zip(slot_ids(tier, number, len(slots)), slots, strict=True):
        at_burst = place is not None and host in now.hosts and now.hosts[host].matches(place)
        if at_burst and not draft.is_lost(host) and (joined is None or worker in joined):
            by_host.setdefault(host, []).append(worker)
    return by_host


def _seconds_able(draft: Draft, change: ChangeRecord, tier: TierName, report: IncarnationReport) -> float:
    """Return for how long the workers have been able to take tasks. Unit: seconds."""
    joined = change.receipts.get(tier, {}).get(JOINING_KEY, ())
    stamps = [report.since, *(report.workers[name].at for name in joined if name in report.workers)]
    return min(draft.age(stamp) for stamp in stamps)


def _canary_did(host: HostName, worker: UnitId, records: int) -> str:
    return f"{host}'s canary {worker} {_first_work(records)}"


def _burst_did(host: HostName, worker: UnitId, records: int) -> str:
    return f"{host} {'' if records < 0 else f'is ready: {worker} '}{_first_work(records)}"


def _first_work(records: int) -> str:
    """Say what a worker has done first."""
    if records < 0:  # the owner died, and the next incarnation took over at once
        return "has processed no record yet"
    return (
        f"has processed {records:,} records"
        if records
        else "has run an empty task, because no records flowed"
    )
