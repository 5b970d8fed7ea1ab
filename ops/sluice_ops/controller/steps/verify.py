"""The step verify: each new incarnation goes on where its old one stopped.

So no record is lost.
"""

from typing import Any

from sluice_ops.controller.outcome import Done, Failed, Outcome, Waiting
from sluice_ops.controller.pass_state import Draft
from sluice_ops.controller.policies import health, resize_in_place
from sluice_ops.model.change import Operation
from sluice_ops.model.ids import Incarnation, TierName
from sluice_ops.model.incarnation import Receipt, State
from sluice_ops.model.wording import listed

GAP_SECONDS = 10.0
"""How long the step waits for the gaps in the output.

A driver reports its gap 4 s after it is level, or with its first batch. Without output it never
does.
"""

HANGS_SECONDS = 60.0
"""An old incarnation that has not ended this long after the handover hangs, and is taken away."""


def verify(draft: Draft, operation: Operation) -> Outcome:
    """Compare the receipts of all handovers, and note those of workers that left or joined."""
    change = draft.changes[operation.change]
    receipts: dict[TierName, dict[str, Any]] = {}
    wrong: list[str] = []
    for tier, numbers in change.receipts.items():
        if numbers.get("new") != draft.owners[tier].owner:
            return Failed(
                f"{tier} has not been handed over to incarnation {numbers.get('new')}; post its cut first"
            )
        old = Incarnation(numbers["old"])
        in_place = resize_in_place.receipt(draft, tier, numbers)
        if in_place is not None:
            receipts[tier] = {**numbers, **in_place}
            continue
        comparison = _compare(draft, tier, old, Incarnation(numbers["new"]))
        if isinstance(comparison, Waiting):
            if draft.age(operation.posted_at) > min(HANGS_SECONDS, operation.deadline_seconds / 2) and _hangs(
                draft, tier, old
            ):
                draft.retire(tier, old)
                draft.log(
                    f"{tier}: incarnation {old} has not ended after its handover and is taken away; "
                    f"incarnation {numbers['new']} goes on"
                )
            return comparison
        receipts[tier] = comparison
        wrong.extend(comparison["wrong"])
    without_gap = [
        f"{tier}/{comparison['new']}"
        for tier, comparison in receipts.items()
        if (comparison["old"] != comparison["new"] or resize_in_place.JOINING_KEY in comparison)
        and _gap_may_come(draft, tier, comparison)
    ]
    bound = min(GAP_SECONDS, operation.deadline_seconds / 2)
    if without_gap and draft.age(operation.posted_at) < bound:
        return Waiting(
            f"all receipts have arrived; waiting at most {bound:g} s until {listed(without_gap)} reports "
            "the gap in the output"
        )
    draft.update_change(operation.change, receipts=receipts)
    if wrong:
        return Failed(
            f"the receipts do not balance: {'; '.join(wrong)}; the tiers run on; next: sluice audit",
            {"receipts": receipts},
        )
    sentences = [f"{tier}: {comparison['sentence']}" for tier, comparison in receipts.items()]
    if without_gap:
        sentences.append(
            f"{listed(without_gap)} reported no gap within {bound:g} s; "
            "without output, there was none to measure"
        )
    return Done("; ".join(sentences) or "nothing was handed over", {"receipts": receipts})


def _gap_may_come(draft: Draft, tier: TierName, comparison: dict[str, Any]) -> bool:
    """Tell whether a running incarnation may still report the gap of its handover."""
    report = health.report(draft, tier, Incarnation(comparison["new"]))
    return comparison.get("gap_seconds") is None and report is not None and report.state is State.RUNNING


def _hangs(draft: Draft, tier: TierName, old: Incarnation) -> bool:
    """Tell whether an old incarnation that should stop still runs."""
    return old != draft.owners[tier].owner and not health.has_ended(draft, tier, old)


def _compare(draft: Draft, tier: TierName, old: Incarnation, new: Incarnation) -> Waiting | dict[str, Any]:
    before, after = health.report(draft, tier, old), health.report(draft, tier, new)
    if after is not None and after.state is State.PAUSED and after.started_from is None:
        return {
            "old": old,
            "new": new,
            "wrong": [],
            "sentence": f"paused; {new} will go on where {old} stopped",
        }
    if after is None or after.started_from is None:
        return Waiting(f"waiting for {tier}/{new} to report where it started")
    ended = before is not None and before.state in health.ENDED
    stopped = None if before is None else before.stopped_at
    if not ended and not health.has_ended(draft, tier, old):
        return Waiting(f"waiting for {tier}/{old} to leave its receipt")
    wrong: list[str] = []
    if stopped is None or (before is not None and before.state is State.FAILED):
        sentence = (
            f"{old} left no receipt ({_how_it_ended(draft, tier, old)}); {new} went on from the last commit"
        )
    elif not (unbalanced := _unbalanced(stopped, after.started_from)) or not ledger_went_on(
        stopped, after.started_from
    ):
        wrong = [f"{tier} {line}" for line in unbalanced]
        sentence = f"{new} goes on where {old} stopped, on {len(after.started_from.positions)} partitions"
    else:
        sentence = (
            f"{old} stopped without the ledger's last batches (its last: {_batch(stopped)}): "
            f"it hung, or {new} took over before it stopped; "
            f"{new} went on from the ledger's end, {_batch(after.started_from)}, so nothing is missing"
        )
    if (spread := after.started_from.repartitioned) is not None:
        sentence += (
            f"; its state moved from {spread.before} to {spread.after} partitions: "
            f"{spread.keys_before} keys before, "
        )
        sentence += f"{spread.keys_after} after, in {spread.seconds:.1f} s"
        if spread.keys_after != spread.keys_before:
            wrong.append(
                f"{tier}: {spread.keys_before} keys before its state was repartitioned, {spread.keys_after} "
                "after"
            )
    return {
        "old": old,
        "new": new,
        "stopped_at": None if stopped is None else stopped.model_dump(mode="json"),
        "started_from": after.started_from.model_dump(mode="json"),
        "gap_seconds": after.gap_seconds,
        "sentence": sentence,
        "wrong": wrong,
    }


def ledger_went_on(stopped: Receipt, started: Receipt) -> bool:
    """Tell whether the ledger has batches that the old incarnation did not know when it stopped.

    Pure. Each batch in the ledger begins where the one before ends. An incarnation that starts from
    the ledger's end leaves nothing out.
    """
    return started.batch is not None and (stopped.batch is None or started.batch > stopped.batch)


def _batch(receipt: Receipt) -> str:
    return "none" if receipt.batch is None else f"batch {receipt.batch}"


def _how_it_ended(draft: Draft, tier: TierName, number: Incarnation) -> str:
    """Say how an incarnation without a receipt ended, such as a hang and its time."""
    spec = draft.incarnations[tier].get(number)
    return "it did not end by itself" if spec is None or spec.hung is None else f"it {spec.hung}"


def _unbalanced(stopped: Receipt, started: Receipt) -> list[str]:
    """Name the partitions with missing records.

    Records that both have read are dropped further on.
    """
    wrong: list[str] = []
    for partition, end in sorted(stopped.positions.items()):
        begin = started.positions.get(partition)
        if begin is None:
            if end > 0:
                wrong.append(f"{partition}: stopped at {end}, no start is known")
        elif begin > end:
            wrong.append(f"{partition}: stopped at {end}, started from {begin}")
    return wrong
