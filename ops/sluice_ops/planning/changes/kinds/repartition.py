"""Repartition: spread the state of a tier over another number of partitions."""

from collections.abc import Iterable

from sluice_ops.model.change import ChangeSpec
from sluice_ops.model.incarnation import Placement
from sluice_ops.model.tier import tasks_at_once
from sluice_ops.planning.changes.kind import TIER, Field, Input, Kind, TierCheck
from sluice_ops.planning.changes.lookups import tier_of
from sluice_ops.planning.placement.cluster import Cluster, RefusedError, TierNow
from sluice_ops.planning.placement.shares import Target

STORES_PER_THREAD = 16
"""The most state partitions for each thread of the workers.

Each partition of each operator is a store of its own in an executor's memory. A much larger number
is a typing error.
"""


class Repartition(Kind):
    name = "repartition"
    summary = (
        "Spread a tier's state over another number of partitions. Records flow meanwhile, and Sluice counts "
        "the keys before and after."
    )
    details = (
        "The next incarnation copies the newest checkpoint, repartitions the copy, and takes over if "
        "the copy holds as many keys as before. If not, the tier continues unchanged, and the run fails."
    )
    example = "sluice repartition counts 8"
    fields = (
        TIER,
        Field(
            "partitions",
            Input.COUNT,
            "The new number of partitions of the state: a few for each thread of the workers.",
        ),
    )
    runbook = "repartition_tier"
    sets_tier = True

    def refuse(self, spec: ChangeSpec, cluster: Cluster) -> Iterable[str]:
        tier = tier_of(spec, cluster)
        name, wanted = tier.spec.name, spec.partitions
        if wanted is None:
            message = "repartition needs partitions, the new number of partitions of the state"
            raise RefusedError(message)
        if not tier.spec.state:
            message = f'tier "{name}" holds no state in Spark, so nothing can be repartitioned' + (
                "" if tier.spec.light else f"; to add workers, run `sluice scale {name} K`"
            )
            raise RefusedError(message)
        if tier.placement is None or tier.paused or tier.failed:
            condition = "has failed" if tier.failed else "is paused" if tier.paused else "does not run"
            command = "resume" if tier.paused and not tier.failed else "start"
            message = (
                f'tier "{name}" {condition}, but state is repartitioned in a handover of a tier that runs; '
                f"first run `sluice {command} {name}`"
            )
            raise RefusedError(message)
        # the next incarnation of a tier that is light no more has one worker at least
        threads = tasks_at_once(tier.spec, max(1, len(tier.placement.slots)))
        if wanted > STORES_PER_THREAD * threads:
            more = (
                f"raise threads of the driver of {name}, publish, and run `sluice upgrade {name}`"
                if tier.spec.light
                else f"first add workers: `sluice scale {name} K`"
            )
            message = (
                f'tier "{name}": {wanted} partitions mean {wanted // threads} stores of each operator for '
                f"each of its {threads} threads; ask for {STORES_PER_THREAD * threads} partitions or fewer, "
                f"or {more}"
            )
            raise RefusedError(message)
        if tier.partitions == wanted:
            return [f"the state of {name} is already spread over {wanted} partitions"]
        note = (
            f"the state of {name} is repartitioned from {tier.partitions} to {wanted} partitions; "
            "its keys are counted before and after"
        )
        notes = [note]
        if wanted < threads:
            notes.append(f"{threads - wanted} of the {threads} threads of {name} will hold no state")
        return notes

    def must_move(
        self, spec: ChangeSpec, tier: TierNow, now: Placement, aim: Target, cluster: Cluster
    ) -> bool:
        return tier.partitions != spec.partitions

    def unmet(self, spec: ChangeSpec, tier: TierNow, now: Placement, check: TierCheck) -> Iterable[str]:
        if tier.partitions == spec.partitions:
            return []
        return [f"is spread over {tier.partitions} partitions"]


KIND = Repartition()
