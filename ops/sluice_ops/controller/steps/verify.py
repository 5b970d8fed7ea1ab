"""Verify: where each old incarnation stopped is where the new one goes on, so that nothing is lost."""

from typing import Any

from sluice_ops.controller.outcome import Done, Failed, Outcome, Waiting
from sluice_ops.controller.pass_state import Draft
from sluice_ops.controller.policies import health, shrink_in_place
from sluice_ops.model.change import Operation
from sluice_ops.model.ids import Incarnation, TierName
from sluice_ops.model.incarnation import Receipt, State
from sluice_ops.model.wording import listed

GAP_SECONDS = 10.0
"""How long gaps are waited for. A driver tells its own 4 s after it is level, or with its first batch; never where nothing comes out."""

HANGS_SECONDS = 60.0
"""An old incarnation that has not ended so long after its tier was handed over hangs, and is taken away."""


def verify(draft: Draft, operation: Operation) -> Outcome:
    """Compare the receipts of every hand-over of this change, and note those of workers that were let go."""
    change = draft.changes[operation.change]
    checked: dict[TierName, dict[str, Any]] = {}
    wrong: list[str] = []
    for tier, numbers in change.receipts.items():
        if numbers.get("new") != draft.owners[tier].owner:
            return Failed(f"{tier} has not been handed over to {numbers.get('new')}; its cut comes first")
        old = Incarnation(numbers["old"])
        if shrink_in_place.LETS_GO in numbers:
            checked[tier] = {
                **numbers,
                **shrink_in_place.receipt(draft, tier, numbers[shrink_in_place.LETS_GO]),
            }
            continue
        found = _compare(draft, tier, old, Incarnation(numbers["new"]))
        if isinstance(found, Waiting):
            if draft.age(operation.posted_at) > min(HANGS_SECONDS, operation.deadline_seconds / 2) and _hangs(
                draft, tier, old
            ):
                draft.retire(tier, old)
                draft.log(
                    f"{tier}: incarnation {old} has not ended since it was handed over, and is taken away; {numbers['new']} runs on"
                )
            return found
        checked[tier] = found
        wrong.extend(found["wrong"])
    handed = {tier: found for tier, found in checked.items() if shrink_in_place.LETS_GO not in found}
    untold = [f"{tier}/{found['new']}" for tier, found in handed.items() if _is_untold(draft, tier, found)]
    bound = min(GAP_SECONDS, operation.deadline_seconds / 2)
    if untold and draft.age(operation.posted_at) < bound:
        return Waiting(
            f"the receipts are there; waiting {bound:g} s at most for {listed(untold)} to tell the gap in the output"
        )
    draft.update_change(operation.change, receipts=checked)
    if wrong:
        return Failed(
            f"the receipts do not balance: {'; '.join(wrong)}; the tiers run on, look at the ledger",
            {"receipts": checked},
        )
    sentences = [f"{tier}: {found['sentence']}" for tier, found in checked.items()]
    if untold:
        sentences.append(
            f"no gap was told by {listed(untold)} within {bound:g} s; where no records came out meanwhile, there was none to measure"
        )
    return Done("; ".join(sentences) or "nothing was handed over", {"receipts": checked})


def _is_untold(draft: Draft, tier: TierName, found: dict[str, Any]) -> bool:
    """Tell whether an incarnation that runs may still tell the gap that it left."""
    said = health.report(draft, tier, Incarnation(found["new"]))
    return found.get("gap_seconds") is None and said is not None and said.state is State.RUNNING


def _hangs(draft: Draft, tier: TierName, old: Incarnation) -> bool:
    """Tell whether an incarnation that was to stop is still there."""
    return old != draft.owners[tier].owner and not health.gone(draft, tier, old)


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
        return Waiting(f"waiting for {tier}/{new} to say where it started")
    ended = before is not None and before.state in health.ENDED
    stopped = None if before is None else before.stopped_at
    if not ended and not health.gone(draft, tier, old):
        return Waiting(f"waiting for {tier}/{old} to leave its receipt")
    wrong: list[str] = []
    if stopped is None or (before is not None and before.state is State.FAILED):
        sentence = f"{old} left no receipt ({_how_it_ended(draft, tier, old)}); {new} went on from what was committed"
    elif not (unbalanced := _unbalanced(stopped, after.started_from)) or not ledger_went_on(
        stopped, after.started_from
    ):
        wrong = [f"{tier} {line}" for line in unbalanced]
        sentence = f"{new} goes on where {old} stopped, on {len(after.started_from.positions)} partitions"
    else:
        sentence = (
            f"{old} stopped without knowing of the ledger's last batches (it knew of {_batch(stopped)}): it hung, or {new} had taken over "
            f"before it stopped; {new} went on from the ledger's end, {_batch(after.started_from)}, so nothing is missing"
        )
    if (spread := after.started_from.repartitioned) is not None:
        sentence += f"; its state is in {spread.after} partitions, and was in {spread.before}: {spread.keys_after} keys, "
        sentence += f"{spread.keys_before} before, in {spread.seconds:.1f} s"
        if spread.keys_after != spread.keys_before:
            wrong.append(
                f"{tier}: {spread.keys_before} keys before its state was spread anew, {spread.keys_after} after"
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
    """Tell whether others had written when the new one started, of which the old one did not know as it stopped. Pure.

    Each batch in the ledger begins where the one before ends, so whoever starts from its end leaves nothing out.
    """
    return started.batch is not None and (stopped.batch is None or started.batch > stopped.batch)


def _batch(receipt: Receipt) -> str:
    return "none" if receipt.batch is None else f"batch {receipt.batch}"


def _how_it_ended(draft: Draft, tier: TierName, number: Incarnation) -> str:
    """Say how an old incarnation ended that left no receipt: whether it hung, since when, and what was done about it."""
    spec = draft.incarnations[tier].get(number)
    return "it did not end by itself" if spec is None or spec.hung is None else f"it {spec.hung}"


def _unbalanced(stopped: Receipt, started: Receipt) -> list[str]:
    """Name the partitions where something would be missing. What both have read is told apart where it is written."""
    wrong: list[str] = []
    for partition, end in sorted(stopped.positions.items()):
        begin = started.positions.get(partition)
        if begin is None:
            if end > 0:
                wrong.append(f"{partition}: stopped at {end}, and no start is known")
        elif begin > end:
            wrong.append(f"{partition}: stopped at {end}, started from {begin}")
    return wrong
