"""Which burst follows from the decisions: one for a tier without room at home, or the end of all.

The scaler does not launch instances. Airflow's runbooks follow its wish.
"""

from collections.abc import Mapping

from sluice_ops.model.ids import TierName
from sluice_ops.model.scaler import Decision, Mode, Wish
from sluice_ops.planning.scaler.signals import Observation


def wish(decisions: Mapping[TierName, Decision], observation: Observation) -> Wish | None:
    """Return the runbook that should run now; None: none.

    Runbooks run one after the other, so one wish is enough. The tier whose records wait longest
    comes first. Leaving EC2 ends the bursts of all tiers: it waits until no tier needs one, and
    until no burst of a person is left.
    """
    if observation.changing:
        return None
    missing = {
        tier: decided.away - observation.bounds[tier].away
        for tier, decided in decisions.items()
        if decided.mode is Mode.ACT and decided.away > observation.bounds[tier].away
    }
    if missing:
        first = min(missing, key=lambda tier: (-_waiting_seconds(tier, observation), tier))
        return Wish(tier=first, k=missing[first], reason=decisions[first].reason)
    away = [tier for tier, bounds in observation.bounds.items() if bounds.away]
    if away and all(_may_leave(tier, decisions, observation) for tier in away):
        reasons = "; ".join(f"{tier}: {decisions[tier].reason}" for tier in away)
        return Wish(reason=f"no tier needs workers on EC2 ({reasons})")
    return None


def _may_leave(tier: TierName, decisions: Mapping[TierName, Decision], observation: Observation) -> bool:
    decided = decisions.get(tier)
    return (
        observation.bounds[tier].away_by_scaler
        and decided is not None
        and decided.mode is Mode.ACT
        and decided.away == 0
    )


def _waiting_seconds(tier: TierName, observation: Observation) -> float:
    signals = observation.signals.get(tier)
    return 0.0 if signals is None else signals.lag_seconds
