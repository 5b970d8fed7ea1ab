"""Spread the state of a tier over another number of partitions."""

from collections.abc import Iterable

from sluice_ops.model.change import ChangeSpec
from sluice_ops.model.incarnation import Placement
from sluice_ops.planning.changes.kind import TIER, Field, Input, Kind, TierCheck
from sluice_ops.planning.changes.lookups import tier_of
from sluice_ops.planning.placement.cluster import Cluster, RefusedError, TierNow
from sluice_ops.planning.placement.shares import Target

STORES_PER_THREAD = 16
"""Each partition of each operator is a store of its own in an executor's memory; a much larger number is a typing error."""


class Repartition(Kind):
    name = "repartition"
    summary = (
        "Spread the Spark state of a tier over more or fewer partitions while records flow; its keys "
        "are counted before and after."
    )
    details = (
        "The next incarnation copies the newest checkpoint, spreads the copy anew, and takes over "
        "when it holds as many keys as before. Where that fails, the tier goes on as it was, and the "
        "run is red."
    )
    example = "sluice repartition by-user 8"
    fields = (
        TIER,
        Field(
            "partitions",
            Input.COUNT,
            "Over how many partitions the state is to be spread: a few for each thread of the workers.",
        ),
    )
    runbook = "repartition_tier"
    sets_tier = True

    def refuse(self, spec: ChangeSpec, cluster: Cluster) -> Iterable[str]:
        """Raise RefusedError for what is unknown or impossible; return notes on the rest."""
        tier = tier_of(spec, cluster)
        name, wanted = tier.spec.name, spec.partitions
        if wanted is None:
            message = "repartition needs partitions, the number over which the state is to be spread"
            raise RefusedError(message)
        if not tier.spec.state:
            message = f'tier "{name}" holds no state in Spark: there is nothing to spread; `sluice scale {name}` gives it more workers'
            raise RefusedError(message)
        if tier.placement is None or tier.paused or tier.failed:
            how = "has failed" if tier.failed else "is paused" if tier.paused else "does not run"
            message = f'tier "{name}" {how}: its state is spread anew in a hand-over, and counted; have it run first'
            raise RefusedError(message)
        threads = len(tier.placement.slots) * tier.spec.quantum.threads
        if wanted > STORES_PER_THREAD * threads:
            message = (
                f'tier "{name}": {wanted} partitions are {wanted / threads:.0f} stores of each operator for each of its {threads} threads; '
                f"ask for {STORES_PER_THREAD * threads} or fewer, or scale it first"
            )
            raise RefusedError(message)
        if tier.partitions == wanted:
            return [f"the state of {name} is spread over {wanted} partitions already"]
        note = f"the state of {name} is spread over {wanted} partitions, and was over {tier.partitions}; its keys are counted before and after"
        return [
            note,
            *(
                [f"{threads - wanted} of its {threads} threads will hold no state"]
                if wanted < threads
                else ()
            ),
        ]

    def must_move(
        self, spec: ChangeSpec, tier: TierNow, now: Placement, aim: Target, cluster: Cluster
    ) -> bool:
        """Tell whether the tier is not yet as the change wants it."""
        return tier.partitions != spec.partitions

    def unmet(self, spec: ChangeSpec, tier: TierNow, now: Placement, check: TierCheck) -> Iterable[str]:
        """Say, for the checker, what is not as the change wants it."""
        wrong = tier.partitions != spec.partitions
        return [f"is spread over {tier.partitions} partitions"] if wrong else []


KIND = Repartition()
