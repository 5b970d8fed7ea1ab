"""Which bursts follow from the decisions: more workers on EC2 for a tier, or fewer.

The scaler does not launch instances. Airflow's runbooks follow its wish.
"""

from collections.abc import Mapping

from sluice_ops.model.ids import TierName
from sluice_ops.model.scaler import Decision, Mode, Wish
from sluice_ops.planning.scaler.signals import Observation


def wish(decisions: Mapping[TierName, Decision], observation: Observation) -> Wish | None:
    """Return the burst that should be made now; None: none.

    Runbooks run one after the other, so one wish is enough. The tier whose records wait longest
    comes first.
    """
    missing = _differences(decisions, observation, 1)
    if observation.changing or not missing:
        return None
    first = min(missing, key=lambda tier: (-_waiting_seconds(tier, observation), tier))
    return Wish(tier=first, k=missing[first], reason=decisions[first].cause)


def leave(decisions: Mapping[TierName, Decision], observation: Observation) -> Wish | None:
    """Return the workers that should leave EC2 now; None: none, or a burst comes first.

    The tier with the most workers too many comes first. The burst of a person stays.
    """
    superfluous = {
        tier: count
        for tier, count in _differences(decisions, observation, -1).items()
        if observation.bounds[tier].away_by_scaler
    }
    if observation.changing or not superfluous or wish(decisions, observation) is not None:
        return None
    first = min(superfluous, key=lambda tier: (-superfluous[tier], tier))
    return Wish(tier=first, k=superfluous[first], reason=decisions[first].cause)


def _differences(
    decisions: Mapping[TierName, Decision], observation: Observation, sign: int
) -> dict[TierName, int]:
    """Return the workers on EC2 that tiers lack, or with a `sign` of -1 have too many."""
    differences = {
        tier: sign * (decided.away - observation.bounds[tier].away)
        for tier, decided in decisions.items()
        if decided.mode is Mode.ACT
    }
    return {tier: count for tier, count in differences.items() if count > 0}


def _waiting_seconds(tier: TierName, observation: Observation) -> float:
    signals = observation.signals.get(tier)
    return 0.0 if signals is None else signals.lag_seconds
