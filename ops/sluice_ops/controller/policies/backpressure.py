"""Backpressure: a gate takes records at the rate of a later tier that lags (decisions 19 and 64).

A gate is an entry tier that lets records in from outside. Records that are in the pipeline already
go on to its end. A tier that is declared to lag throttles no gate (decision 91).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sluice_ops.controller.pass_state import Draft
from sluice_ops.model.admission import admitted_rate
from sluice_ops.model.backpressure import Hold, Holds, Pressure
from sluice_ops.model.ids import TierName
from sluice_ops.model.status import TierState, TierStatus
from sluice_ops.model.tier import TierSpec, written_by

KEPT_HOLDS = 50
"""How many holds are kept in the history."""


@dataclass(frozen=True)
class BackpressureRuling:
    """Which gates are throttled, and for which tier."""

    statuses: Mapping[TierName, TierStatus]
    """The statuses of all tiers; a tier that exceeds a lag limit has its lag."""
    throttles: Mapping[TierName, tuple[TierName | None, float]]
    """Gates whose throttle changes → the tier that lags, and the admitted rate; None: the gate is
    not throttled any more.
    """
    holds: Holds
    events: tuple[str, ...]

    def apply(self, draft: Draft) -> None:
        """Throttle the gates, or let them take records again."""
        draft.statuses |= self.statuses
        for gate, (culprit, admitted) in self.throttles.items():
            draft.update_owner(gate, held_for=culprit, admitted=admitted)
        draft.holds = self.holds
        draft.log(*self.events)


def gates_to_throttle(draft: Draft) -> BackpressureRuling:
    """Decide which gates are throttled, and how many records each may let in."""
    statuses = {name: _with_pressure(draft, name, status) for name, status in draft.statuses.items()}
    pressing = {name: status.pressure for name, status in statuses.items() if status.pressure is not None}
    lagging = lagging_after({name: tier.spec for name, tier in draft.view.tiers.items()}, pressing)
    throttles: dict[TierName, tuple[TierName | None, float]] = {}
    holds = list(draft.holds.last)
    events: list[str] = []
    for gate, record in draft.owners.items():
        culprits = lagging.get(gate, ())
        culprit = culprits[0] if culprits else None
        admitted = _admitted(draft, gate, [pressing[name] for name in culprits])
        if (culprit, admitted) != (record.held_for, record.admitted):
            throttles[gate] = culprit, admitted
        if culprit == record.held_for:
            continue
        if record.held_for is not None:
            holds = [_ended(hold, draft.now) if hold.tier == gate else hold for hold in holds]
        if culprit is None:
            why = f"{record.held_for} is below its low watermark, or no longer counts"
            events.append(f"{gate} is throttled no more: {why}")
        else:
            sentence = pressing[culprit].sentence
            holds.append(Hold(tier=gate, culprit=culprit, sentence=sentence, begun=draft.now))
            events.append(f"{gate} is throttled: {culprit} {sentence}")
    last = draft.holds.model_copy(update={"last": tuple(holds[-KEPT_HOLDS:])}) if events else draft.holds
    return BackpressureRuling(statuses, throttles, last, tuple(events))


def _admitted(draft: Draft, gate: TierName, pressures: Sequence[Pressure]) -> float:
    """Return how many records a gate may let in each second; 0 if no tier lags, too."""
    record = draft.owners[gate]
    if not pressures:
        return 0.0
    report = None if record.owner is None else draft.view.tiers[gate].reports.get(record.owner)
    before = record.admitted if record.held_for is not None else 0.0
    return admitted_rate(before, None if report is None else report.rate_taken, pressures)


def _ended(hold: Hold, now: float) -> Hold:
    return hold.model_copy(update={"ended": now}) if hold.ended is None else hold


def lagging_after(
    specs: Mapping[TierName, TierSpec], pressing: Mapping[TierName, Pressure]
) -> dict[TierName, tuple[TierName, ...]]:
    """Return each gate to throttle, with the lagging tiers after it.

    The first of them is nearest the pipeline's end: the culprit. A tier that is declared to lag
    throttles no gate.
    """
    written = written_by(specs.values())
    holding = {name: lag for name, lag in pressing.items() if name in specs and specs[name].holds}
    nearest = sorted(holding, key=lambda name: (specs[name].distance, name))
    lagging: dict[TierName, tuple[TierName, ...]] = {}
    for culprit in nearest:
        for name in upstream(specs, culprit):
            is_gate = not written.issuperset(specs[name].inputs)
            # A gate that lags in a stream of the pipeline is not throttled: two gates that feed
            # each other would otherwise wait for ever.
            if is_gate and not (name in holding and holding[name].stream in written):
                lagging[name] = (*lagging.get(name, ()), culprit)
    return lagging


def upstream(specs: Mapping[TierName, TierSpec], tier: TierName) -> set[TierName]:
    """Return all tiers whose records reach a tier, without the tier itself."""
    writers: dict[str, set[TierName]] = defaultdict(set)
    for name, spec in specs.items():
        for stream in spec.outputs:
            writers[stream].add(name)
    tiers: set[TierName] = set()
    left = [tier]
    while left:
        before = {name for stream in specs[left.pop()].inputs for name in writers[stream]} - tiers
        tiers |= before
        left += before
    return tiers - {tier}


def _with_pressure(draft: Draft, name: TierName, status: TierStatus) -> TierStatus:
    """Return a tier's status with its lag, from the driver's report or the last status.

    A tier that does not run wants no records.
    """
    wanted, record = draft.wanted[name], draft.owners[name]
    if not wanted.running or wanted.paused or record.paused or status.state is TierState.STOPPED:
        return status  # stopped or paused on purpose: its records wait in their stream, no gate waits
    report = draft.view.tiers[name].reports.get(record.owner) if record.owner is not None else None
    if status.state is TierState.RUNNING and report is not None and report.measured:
        return status.model_copy(update={"pressure": report.pressure})
    before = None if draft.view.status is None else draft.view.status.tiers.get(name)
    spec = draft.view.tiers[name].spec
    since = before.down_since if before is not None and before.down_since is not None else draft.now
    pressure = None if before is None else before.pressure
    if pressure is not None:
        pressure = pressure.model_copy(update={"rate_wanted": 0.0})
    elif draft.age(since) > spec.patience:
        pressure = Pressure(stream=spec.inputs[0], lag=None, since=since)
    return status.model_copy(update={"down_since": since, "pressure": pressure})
