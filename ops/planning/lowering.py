"""Fewer workers without a hand-over: a tier gives up its last ones where it runs (decision record 0041). Pure; called by `plan`."""

from ops.model.incarnation import Placement
from ops.model.operation import ChangeKind, ChangeSpec
from ops.model.tier import Mode, Standby
from ops.planning.cluster import Cluster, TierNow
from ops.planning.drift import breaches, numbers
from ops.planning.shares import Target

OF_NUMBERS = frozenset({ChangeKind.SCALE, ChangeKind.SHIFT, ChangeKind.SETTLE})
"""The kinds of change that are about numbers alone."""


def kept_in_place(spec: ChangeSpec, tier: TierNow, aim: Target, cluster: Cluster, *, tight: bool) -> Placement | None:
    """Return what a tier keeps that gives up its last workers; None where it is handed over.

    A realtime tier does so only where room is `tight`: it is without output for longer than a hand-over of its takes. Nor does one whose
    state lies with its workers, that has a standby as large as itself, that does not work with all of its workers, or that may not stay
    where it is.
    """
    now = tier.placement
    if now is None or spec.kind not in OF_NUMBERS or not 0 < (k := numbers(now, aim, cluster.hosts)[0]) < len(now.slots):
        return None
    whole = not (tier.spec.state or tier.paused or tier.paused_workers) and tier.spec.standby is Standby.NONE and not aim.extra
    if not whole or (tier.spec.mode is Mode.REALTIME and not tight):
        return None
    after, hosts = Placement(driver=now.driver, slots=now.slots[:k]), cluster.hosts
    stays = all(name in hosts and hosts[name].usable and hosts[name].matches(aim.to) for name in after.hosts)
    return after if stays and not [*breaches(tier.spec.name, after, aim, hosts)] else None
