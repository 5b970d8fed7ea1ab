"""Who is held back while a tier further on is too far behind, and for whom (decision record 0019). Called once in each pass.

Only a gate is held: a tier that lets records in from outside. What is in the pipeline already goes on to its end.
"""

from collections import defaultdict
from collections.abc import Mapping

from sluice_ops.controller.pass_state import Draft
from sluice_ops.model.backpressure import Hold, Pressure
from sluice_ops.model.ids import TierName
from sluice_ops.model.status import TierState, TierStatus
from sluice_ops.model.tier import TierSpec

KEPT = 50
"""How many times of holding back are remembered."""


def keep(draft: Draft) -> None:
    """Say of each tier whether it is behind too far, and hold its gates back or let them go on."""
    for name in draft.statuses:
        draft.statuses[name] = _told(draft, name)
    specs = {name: tier.spec for name, tier in draft.view.tiers.items()}
    pressing = {
        name: status.pressure for name, status in draft.statuses.items() if status.pressure is not None
    }
    culprits = culprits_of(specs, pressing)
    for name, record in draft.owners.items():
        culprit = culprits.get(name)
        if culprit != record.held_for:
            draft.own(name, held_for=culprit)
            _record(draft, name, record.held_for, culprit)


def culprits_of(
    specs: Mapping[TierName, TierSpec], pressing: Mapping[TierName, Pressure]
) -> dict[TierName, TierName]:
    """Return each gate that has to be held back, with the tier for which it is: of several the one nearest the pipeline's end."""
    written = {stream for spec in specs.values() for stream in spec.outputs}
    nearest = sorted(pressing.keys() & specs.keys(), key=lambda name: (specs[name].distance, name))
    held: dict[TierName, TierName] = {}
    for culprit in nearest:
        for name in upstream(specs, culprit):
            is_gate = not written.issuperset(specs[name].inputs)
            # who is behind with what the pipeline itself wrote has to go on, or two that feed each other would wait for ever
            if is_gate and not (name in pressing and pressing[name].stream in written):
                held.setdefault(name, culprit)
    return held


def upstream(specs: Mapping[TierName, TierSpec], tier: TierName) -> set[TierName]:
    """Return all tiers from which records come to a tier, without itself."""
    writers: dict[str, set[TierName]] = defaultdict(set)
    for name, spec in specs.items():
        for stream in spec.outputs:
            writers[stream].add(name)
    found: set[TierName] = set()
    left = [tier]
    while left:
        before = {name for stream in specs[left.pop()].inputs for name in writers[stream]} - found
        found |= before
        left += before
    return found - {tier}


def _told(draft: Draft, name: TierName) -> TierStatus:
    """Return a tier's status with how far behind it is: as its driver says, or as it was when there is none to say so."""
    status, wanted, record = draft.statuses[name], draft.wanted[name], draft.owners[name]
    if not wanted.running or wanted.paused or record.paused or status.state is TierState.STOPPED:
        return status  # on purpose: what comes meanwhile waits in its stream, and nobody is held back for it
    said = draft.view.tiers[name].reports.get(record.owner) if record.owner is not None else None
    if status.state is TierState.RUNNING and said is not None and said.measured:
        return status.model_copy(update={"pressure": said.pressure})
    before, spec = (
        None if draft.view.status is None else draft.view.status.tiers.get(name),
        draft.view.tiers[name].spec,
    )
    since = before.down_since if before is not None and before.down_since is not None else draft.now
    pressure = None if before is None else before.pressure
    if pressure is None and draft.age(since) > spec.patience:
        pressure = Pressure(stream=spec.inputs[0], lag=None, since=since)
    return status.model_copy(update={"down_since": since, "pressure": pressure})


def _record(draft: Draft, tier: TierName, before: TierName | None, culprit: TierName | None) -> None:
    """Keep who was held back, when and for whom, and say it."""
    last = list(draft.holds.last)
    if before is not None:
        last = [
            hold.model_copy(update={"ended": draft.now}) if hold.tier == tier and hold.ended is None else hold
            for hold in last
        ]
    pressure = draft.statuses[culprit].pressure if culprit is not None else None
    if culprit is None or pressure is None:
        draft.tell(f"{tier} goes on: {before} is below its low watermark, or does not count any more")
    else:
        last.append(Hold(tier=tier, culprit=culprit, sentence=pressure.sentence, begun=draft.now))
        draft.tell(f"{tier} is held back: {culprit} {pressure.sentence}")
    draft.holds = draft.holds.model_copy(update={"last": tuple(last[-KEPT:])})
