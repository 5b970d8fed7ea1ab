"""The steps pause and resume: write the request, and wait until each driver confirms.

`stop_order` carries the requests out, one tier or worker at a time, nearest the pipeline's end
first.
"""

from sluice_ops.controller.outcome import Done, Failed, Outcome, Waiting
from sluice_ops.controller.pass_state import Draft
from sluice_ops.controller.policies import health, stop_order
from sluice_ops.model.change import ChangeState, Operation, Step
from sluice_ops.model.ids import Incarnation, TierName, UnitId
from sluice_ops.model.incarnation import WorkerReceipt
from sluice_ops.model.status import TierState
from sluice_ops.planning.changes.kinds import KINDS


def pause_or_resume(draft: Draft, operation: Operation) -> Outcome:
    """Request the pause or resume; done when all drivers have confirmed."""
    paused = operation.step is Step.PAUSE
    tiers, workers = _tiers(draft, operation), _workers(draft, operation)
    if gone := [worker for worker in operation.spec.workers if worker not in workers]:
        return Failed(
            f"{', '.join(gone)}: no such worker now, because its tier was handed over; "
            "list the workers: sluice slots"
        )
    for tier in tiers:
        _request(draft, operation, tier, paused=paused)
    for worker, tier in workers.items():
        refused = _request_worker(draft, operation, worker, tier)
        if refused is not None:
            return refused
    word = "paused" if paused else "running"
    given_up = [
        tier
        for tier in tiers
        if operation.spec.tier is None and draft.statuses[tier].state is TierState.FAILED
    ]
    confirmed: dict[str, bool] = {
        tier: _is_confirmed(draft, tier, paused=paused) for tier in tiers if tier not in given_up
    }
    confirmed |= {worker: _receipt(draft, tier, worker) is not None for worker, tier in workers.items()}
    names = [
        str(name)
        for tier in draft.end_first()
        for name in (tier.spec.name, *draft.workers(tier.spec.name))
        if name in confirmed
    ]
    pending = [name for name in names if not confirmed[name]]
    if not pending:
        draft.end_change(operation.change, ChangeState.DONE)
        receipts = {
            worker: receipt
            for worker, tier in workers.items()
            if (receipt := _receipt(draft, tier, worker)) is not None
        }
        note = f"; left out, as it was given up: {', '.join(given_up)}" if given_up else ""
        described = [_described(name, receipts.get(UnitId(name))) for name in names]
        return Done(
            f"{word}: {', '.join(described) or 'no tier is started'}{note}",
            {"receipts": {worker: receipt.model_dump(mode="json") for worker, receipt in receipts.items()}},
        )
    stuck = [
        tier
        for tier in (*tiers, *workers.values())
        if tier not in given_up and draft.statuses[tier].state is TierState.FAILED
    ]
    if stuck:
        return Failed(f"{stuck[0]} cannot be {word}: the tier {draft.statuses[stuck[0]].sentence}")
    already = (
        f"; {word} already: {', '.join(name for name in names if confirmed[name])}"
        if any(confirmed.values())
        else ""
    )
    return Waiting(f"waiting until {pending[0]} is {word}{already}")


def _tiers(draft: Draft, operation: Operation) -> list[TierName]:
    specs = [tier.spec for tier in draft.end_first()]
    whole = KINDS[operation.spec.kind].whole_tiers(operation.spec, specs)
    return [spec.name for spec in specs if spec.name in whole and draft.wanted[spec.name].running]


def _workers(draft: Draft, operation: Operation) -> dict[UnitId, TierName]:
    """Return the requested workers whose incarnation owns its tier, each with its tier."""
    all_of = {worker: tier for tier in draft.view.tiers for worker in draft.workers(tier)}
    return {worker: all_of[worker] for worker in operation.spec.workers if worker in all_of}


def _request(draft: Draft, operation: Operation, tier: TierName, *, paused: bool) -> None:
    wanted = draft.wanted[tier]
    workers = wanted.paused_workers if paused else ()
    if (wanted.paused, wanted.paused_workers) != (paused, workers):
        changes = {"paused": paused, "paused_workers": workers, "by": operation.by, "at": draft.now}
        draft.wanted[tier] = wanted.model_copy(update=changes)


def _request_worker(draft: Draft, operation: Operation, worker: UnitId, tier: TierName) -> Failed | None:
    wanted = draft.wanted[tier]
    if wanted.paused:
        return Failed(
            f"{worker} cannot be paused alone: the whole tier is paused; first: sluice resume {tier}"
        )
    if worker not in wanted.paused_workers:
        living = [known for known in wanted.paused_workers if known in draft.workers(tier)]
        changes = {"paused_workers": (*living, worker), "by": operation.by, "at": draft.now}
        draft.wanted[tier] = wanted.model_copy(update=changes)
    return None


def _is_confirmed(draft: Draft, tier: TierName, *, paused: bool) -> bool:
    return (
        draft.owners[tier].paused is paused
        and health.confirmed(draft, tier)
        and (paused or stop_order.workers_settled(draft, tier))
    )


def _receipt(draft: Draft, tier: TierName, worker: UnitId) -> WorkerReceipt | None:
    """Return the owner's receipt for a worker; None until the worker is paused."""
    record = draft.owners[tier]
    report = health.report(draft, tier, record.owner or Incarnation(0))
    if report is None or worker not in record.paused_workers or worker not in report.paused_workers:
        return None
    return report.workers[worker]


def _described(name: str, receipt: WorkerReceipt | None) -> str:
    if receipt is None:
        return name
    failed = f", {receipt.failed} of them failed" if receipt.failed else ""
    return f"{name} (drained in {receipt.seconds:.1f} s, {receipt.tasks} tasks done{failed})"
