"""Lookups and refusals that several kinds of change share.

Each refusal names the object, the reason and the next step.
"""

from collections.abc import Iterable

from sluice_ops.model.change import ChangeSpec
from sluice_ops.model.ids import BATCH, HostName
from sluice_ops.model.share import Layer, LayerEntry
from sluice_ops.model.tier import Mode, TierSpec, is_light, why_no_spares
from sluice_ops.model.wording import counted, listed
from sluice_ops.planning.placement.cluster import Cluster, RefusedError, TierNow
from sluice_ops.planning.placement.shares import (
    OF_PIPELINE,
    bounded_by,
    divided_share,
    limits,
    most_beside_others,
    target,
)

PLANNED = "plan"
"""The owner of a layer entry that only a plan has set so far."""


def host_of(spec: ChangeSpec, cluster: Cluster) -> HostName:
    """Return the host that the change names.

    Raise RefusedError if the host is missing or unknown.
    """
    known = ", ".join(sorted(cluster.hosts)) or "none has registered yet"
    if spec.host is None:
        message = f"{spec.kind} needs a host; known hosts: {known}"
        raise RefusedError(message)
    if spec.host not in cluster.hosts:
        message = f'there is no host "{spec.host}"; known hosts: {known}'
        raise RefusedError(message)
    return spec.host


def tier_of(spec: ChangeSpec, cluster: Cluster) -> TierNow:
    """Return the tier that the change names.

    Raise RefusedError if the tier is missing or unknown.
    """
    if spec.tier is None:
        message = f"{spec.kind} needs a tier; {_known_tiers(cluster)}"
        raise RefusedError(message)
    if spec.tier not in cluster.tiers:
        message = f'there is no tier "{spec.tier}"; {_known_tiers(cluster)}'
        raise RefusedError(message)
    return cluster.tiers[spec.tier]


def refuse_unknown_tiers(spec: ChangeSpec, cluster: Cluster) -> None:
    """Raise RefusedError if a change of several tiers names one that is unknown."""
    unknown = sorted({*spec.tiers} - cluster.tiers.keys())
    if unknown:
        message = f"there is no tier {listed(unknown)}; {_known_tiers(cluster)}"
        raise RefusedError(message)


def _known_tiers(cluster: Cluster) -> str:
    names = ", ".join(tier.spec.name for tier in cluster.end_first())
    return f"known tiers: {names or 'none is published yet'}"


def notes_if_stopped(tier: TierNow) -> Iterable[str]:
    """Return a note that the change takes effect at the tier's next start, if the tier is
    stopped.
    """
    if tier.placement is not None:
        return []
    return [f"{tier.spec.name} does not run: the change takes effect at its next start"]


def notes_on_named_tier(spec: ChangeSpec, cluster: Cluster) -> Iterable[str]:
    """Return the notes on the tier that the change names, if any.

    Raise RefusedError if the tier is unknown.
    """
    return [] if spec.tier is None else notes_if_stopped(tier_of(spec, cluster))


def refuse_spares(spec: TierSpec) -> None:
    """Raise RefusedError if a tier cannot have spares."""
    why = why_no_spares(spec)
    if why is not None:
        message = f'tier "{spec.name}" cannot have spares: {why}; leave --spare out'
        raise RefusedError(message)


def refuse_light(tier: TierNow) -> None:
    """Raise RefusedError if a tier has no workers, or will have none: its driver does the work."""
    name = tier.spec.name
    if tier.spec.light:
        raise RefusedError(is_light(tier.spec))
    if tier.awaits_upgrade:
        message = (
            f'tier "{name}" runs a release in which it is light: its driver does the work, and it has no '
            f"workers; its newest release gives it workers: run `sluice upgrade {name}` first"
        )
        raise RefusedError(message)


def refuse_given_up(spec: ChangeSpec, tiers: Iterable[TierNow]) -> None:
    """Raise RefusedError if one of the tiers was given up, and so cannot be handed over."""
    for tier in tiers:
        if tier.failed:
            raise RefusedError(given_up(spec, tier))


def given_up(spec: ChangeSpec, tier: TierNow) -> str:
    """Return the refusal of a change that would have to move a tier that was given up."""
    name, fault = tier.spec.name, tier.fault.partition("\n")[0]
    return (
        f'tier "{name}" was given up{f" ({fault})" if fault else ""}, and cannot be handed over while it '
        f"does not run. Fix the fault and run `sluice start {name}`, or remove the tier's units with "
        f"`sluice stop {name}`; then repeat the {spec.kind}"
    )


def check_number(tier: TierNow, base: int, k: int, cluster: Cluster) -> None:
    """Raise RefusedError if a number of workers is outside the share or does not fit the
    partitions.

    `base` are the workers without those of a burst; `k` are all workers.
    """
    name = tier.spec.name
    check_share(name, base, k, cluster)
    partitions = cluster.rules.partitions_of(tier.spec)
    if k > partitions:
        message = (
            f'tier "{name}": its input has {partitions} partitions, so {k - partitions} of '
            f"{counted(k, 'worker')} would read nothing; ask for {partitions} workers or fewer"
        )
        raise RefusedError(message)
    threads = k * tier.spec.quantum.threads
    if tier.spec.mode is Mode.REALTIME and threads < partitions:
        message = (
            f'tier "{name}": a realtime tier needs one thread for each of its {partitions} partitions, but '
            f"{counted(k, 'worker')} of {tier.spec.quantum.threads} threads have {threads}; ask for more "
            "workers, or raise quantum.threads"
        )
        raise RefusedError(message)


def check_share(tenant: str, base: int, k: int, cluster: Cluster) -> None:
    """Raise RefusedError if a number is outside the tenant's share.

    `base` are the slots without those of a burst; `k` are all slots.
    """
    name = name_of_tenant(tenant)
    if tenant == BATCH and tenant not in cluster.rules.shares:
        message = "batch has no share; add shares.batch to the site file"
        raise RefusedError(message)
    share = limits(tenant, cluster.rules)
    lowest, highest = bounded_by(tenant, cluster.rules)
    if base < share.minimum:
        advice = how_to_change_bound("lower", "minimum", lowest, tenant)
        if base == 0 and tenant != BATCH:
            advice = (
                f"pause the tier with `sluice pause {tenant}`, or remove its workers with `sluice stop "
                f"{tenant}`"
            )
        message = f"{name}: {base} is below its minimum of {share.minimum}; ask for more, or {advice}"
        raise RefusedError(message)
    if k > share.maximum:
        advice = how_to_change_bound("raise", "maximum", highest, tenant)
        message = f"{name}: {k} is above its maximum of {share.maximum}; ask for less, or {advice}"
        raise RefusedError(message)


def refuse_above_pipeline_share(tier: TierNow, slots: int, before: Cluster, after: Cluster) -> None:
    """Raise RefusedError if more slots of one tier would take slots from other tiers, because all
    tiers together have the pipeline's maximum. `after` has the layers after the change.
    """
    name, pipeline = tier.spec.name, after.rules.pipeline_share
    then, now = divided_share(after.rules), divided_share(before.rules)
    if pipeline is None or name not in then or slots <= target(name, before.rules).slots:
        return
    taken_from = [other for other in then if other != name and sum(then[other]) < sum(now[other])]
    if taken_from or target(name, after.rules).bound == OF_PIPELINE:
        message = (
            f"{name_of_tenant(name)}: the tiers have at most {pipeline.maximum} together, which leaves "
            f"{most_beside_others(name, before.rules)} slots for {name}; ask for less, lower another tier "
            "with `sluice scale TIER K`, or raise pipeline_share.maximum in the site file"
        )
        raise RefusedError(message)


def name_of_tenant(tenant: str) -> str:
    """Return `tier "counts"`, or `batch`."""
    return tenant if tenant == BATCH else f'tier "{tenant}"'


def how_to_change_bound(verb: str, bound: str, entry: LayerEntry | None, tenant: str) -> str:
    """Return how to change a minimum or maximum; `entry` set it, or None for the site file."""
    if entry is None:
        return f"{verb} shares.{tenant}.{bound} in the site file"
    if entry.owner == PLANNED:
        return f"{verb} the {bound} of this change"
    return f"set another with `sluice scale {tenant} K --{bound} NUMBER`: {entry.owner} set this {bound}"


def person_entry(spec: ChangeSpec, by: str, now: float) -> LayerEntry:
    """Return an empty entry in the layer `person` for the change's tenant."""
    return LayerEntry(tenant=spec.tenant, layer=Layer.PERSON, owner=by, at=now)
