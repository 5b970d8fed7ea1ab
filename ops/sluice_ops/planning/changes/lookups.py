"""What several kinds of change look up and refuse. Each refusal names the thing, what is wrong, and what to do."""

from collections.abc import Iterable

from sluice_ops.model.change import ChangeSpec
from sluice_ops.model.ids import BATCH, HostName
from sluice_ops.model.share import Layer, LayerEntry
from sluice_ops.model.tier import Mode
from sluice_ops.planning.placement.cluster import Cluster, RefusedError, TierNow
from sluice_ops.planning.placement.shares import bounded_by, limits

PLANNED = "plan"
"""The owner of a number in the layers that only a plan has set yet."""


def host_of(spec: ChangeSpec, cluster: Cluster) -> HostName:
    """Return the host that the change names; RefusedError when there is no such host."""
    known = ", ".join(sorted(cluster.hosts)) or "none has registered yet"
    if spec.host is None:
        message = f"{spec.kind} needs a host; known hosts: {known}"
        raise RefusedError(message)
    if spec.host not in cluster.hosts:
        message = f'there is no host "{spec.host}"; known hosts: {known}'
        raise RefusedError(message)
    return spec.host


def tier_of(spec: ChangeSpec, cluster: Cluster) -> TierNow:
    """Return the tier that the change names; RefusedError when there is no such tier."""
    known = ", ".join(tier.spec.name for tier in cluster.end_first()) or "none is published yet"
    if spec.tier is None:
        message = f"{spec.kind} needs a tier; known tiers: {known}"
        raise RefusedError(message)
    if spec.tier not in cluster.tiers:
        message = f'there is no tier "{spec.tier}"; known tiers: {known}'
        raise RefusedError(message)
    return cluster.tiers[spec.tier]


def notes_if_stopped(tier: TierNow) -> Iterable[str]:
    """Note that the change holds from the tier's next start on."""
    return (
        []
        if tier.placement is not None
        else [f"{tier.spec.name} does not run: it will be so from its next start on"]
    )


def notes_on_named_tier(spec: ChangeSpec, cluster: Cluster) -> Iterable[str]:
    """Return the notes on the tier that the change names, if it names one; RefusedError when there is no such tier."""
    return [] if spec.tier is None else notes_if_stopped(tier_of(spec, cluster))


def refuse_given_up(spec: ChangeSpec, tiers: Iterable[TierNow]) -> None:
    """Refuse to empty hosts of what cannot be handed over."""
    for tier in tiers:
        if tier.failed:
            raise RefusedError(given_up(spec, tier))


def given_up(spec: ChangeSpec, tier: TierNow) -> str:
    """Say why a tier that was given up stands in the way of a change, and what to do."""
    name, fault = tier.spec.name, tier.fault.partition("\n")[0]
    return (
        f'tier "{name}" was given up{f" ({fault})" if fault else ""}, and cannot be handed over while it does not run. Mend its fault and '
        f"`sluice start {name}`, or take it away with `sluice stop {name}`; then ask for the {spec.kind} again"
    )


def check_number(tier: TierNow, base: int, k: int, cluster: Cluster) -> None:
    """Refuse a number of workers outside the share, or that the input's partitions cannot feed."""
    name = tier.spec.name
    check_share(name, base, k, cluster)
    partitions = cluster.rules.partitions_of(tier.spec)
    if k > partitions:
        message = f'tier "{name}": its input has {partitions} partitions, so {k - partitions} of {k} workers would read nothing; ask for less'
        raise RefusedError(message)
    threads = k * tier.spec.quantum.threads
    if tier.spec.mode is Mode.REALTIME and threads < partitions:
        message = (
            f'tier "{name}": a realtime tier holds one thread for each of its {partitions} partitions, '
            f"{k} workers of {tier.spec.quantum.threads} threads have {threads}; ask for more, or raise quantum.threads"
        )
        raise RefusedError(message)


def check_share(tenant: str, base: int, k: int, cluster: Cluster) -> None:
    """Refuse a number outside the share."""
    who = words_for(tenant)
    if tenant == BATCH and tenant not in cluster.rules.shares:
        message = "batch has no share; name it below shares: in the site file"
        raise RefusedError(message)
    share = limits(tenant, cluster.rules)
    lowest, highest = bounded_by(tenant, cluster.rules)
    if base < share.minimum:
        way = way_to_change("lower", "minimum", lowest, tenant)
        if base == 0 and tenant != BATCH:
            way = f"`sluice pause {tenant}` has it stand still, `sluice stop {tenant}` takes its workers away"
        message = f"{who}: {base} is below its minimum of {share.minimum}; ask for more, or {way}"
        raise RefusedError(message)
    if k > share.maximum:
        message = f"{who}: {k} is above its maximum of {share.maximum}; ask for less, or {way_to_change('raise', 'maximum', highest, tenant)}"
        raise RefusedError(message)


def words_for(tenant: str) -> str:
    """Return `tier "counts"`, or `batch`."""
    return tenant if tenant == BATCH else f'tier "{tenant}"'


def way_to_change(verb: str, bound: str, by: LayerEntry | None, tenant: str) -> str:
    """Say where a minimum or maximum can be changed: where it was set."""
    if by is None:
        return f"{verb} shares.{tenant}.{bound} in the site file"
    if by.owner == PLANNED:
        return f"{verb} the {bound} that is asked for with it"
    return f"say another {bound} with it: {by.owner} set this one"


def person_entry(spec: ChangeSpec, by: str, now: float) -> LayerEntry:
    """Begin the layer entry of a person who speaks of the change's tenant."""
    return LayerEntry(tenant=spec.tenant, layer=Layer.PERSON, owner=by, at=now)
