"""Pause tiers, or single workers."""

from collections.abc import Iterable

from sluice_ops.model.change import ChangeSpec, Step
from sluice_ops.model.ids import TierName, UnitId
from sluice_ops.model.tier import Mode
from sluice_ops.model.wording import listed
from sluice_ops.planning.changes.kind import ANY_TIER, Field, Input, Kind
from sluice_ops.planning.changes.lookups import notes_on_named_tier
from sluice_ops.planning.placement.cluster import Cluster, RefusedError, TierNow
from sluice_ops.planning.placement.shares import limits, target


class Pause(Kind):
    name = "pause"
    summary = (
        "Pause a tier, or the pipeline, nearest its end first; slots and sessions stay, records wait "
        "in the streams."
    )
    details = (
        "With workers, pause single workers of tiers without state: the others work on, until the "
        "tier is resumed or handed over. `resume_pipeline` goes on exactly where the pipeline "
        "stopped."
    )
    example = "sluice pause outbound --deadline 60, or: sluice pause --worker slot-counts-3-1"
    steps = (Step.PREFLIGHT, Step.PAUSE)
    fields = (
        ANY_TIER,
        Field(
            "workers",
            Input.WORKERS,
            "A worker alone, by its slot as `sluice slots` lists it; once for each.",
            required=False,
            option=True,
        ),
    )
    runbook = "pause_pipeline"

    def is_of_all(self, spec: ChangeSpec) -> bool:
        """Tell whether every tier is paused."""
        return spec.tier is None and not spec.workers

    def refuse(self, spec: ChangeSpec, cluster: Cluster) -> Iterable[str]:
        """Raise RefusedError for what is unknown or impossible; return notes on the rest."""
        by_tier: dict[TierName, list[UnitId]] = {}
        for worker in spec.workers:
            by_tier.setdefault(_tier_with(worker, cluster), []).append(worker)
        notes = [
            note
            for name, workers in by_tier.items()
            for note in _check_workers(cluster.tiers[name], workers, spec, cluster)
        ]
        return [*notes, *notes_on_named_tier(spec, cluster)]

    def effect(self, spec: ChangeSpec) -> str:
        """Say what the change does."""
        if spec.workers:
            workers = ", ".join(spec.workers)
            return f"{workers}: finishes its task and gets none until the tier is resumed; the others work on"
        return f"nothing comes out of {spec.tier or 'any tier'} until it is resumed; what comes in waits"


KIND = Pause()


def _tier_with(worker: UnitId, cluster: Cluster) -> TierName:
    for name, tier in cluster.tiers.items():
        if worker in tier.workers:
            return name
    known = listed(sorted(each for tier in cluster.tiers.values() for each in tier.workers)) or "none"
    message = f'there is no worker "{worker}"; `sluice slots` lists them: {known}'
    raise RefusedError(message)


def _check_workers(tier: TierNow, workers: list[UnitId], spec: ChangeSpec, cluster: Cluster) -> Iterable[str]:
    """Refuse workers whose tier could not go on without them."""
    name = tier.spec.name
    if spec.tier == name:
        message = (
            f"{', '.join(workers)}: {name} is to be paused as a whole; name the tier or its workers, not both"
        )
        raise RefusedError(message)
    if tier.spec.state:
        message = (
            f'tier "{name}": its state lies with its workers, so none of them can be paused alone; pause the tier, or give it fewer '
            f"workers: `sluice scale {name}`"
        )
        raise RefusedError(message)
    left = len({*tier.workers} - {*tier.paused_workers, *workers})
    if not left:
        message = (
            f'tier "{name}": that would leave it without a worker; pause the tier: `sluice pause {name}`'
        )
        raise RefusedError(message)
    if not {*workers} <= {*tier.paused_workers}:
        _check_left(tier, left, cluster)
    if tier.spec.mode is not Mode.REALTIME:
        return []
    partitions, threads = cluster.rules.partitions_of(tier.spec), left * tier.spec.quantum.threads
    if threads < partitions:
        message = (
            f'tier "{name}": a realtime tier holds one thread for each of its {partitions} partitions, and {left} of its '
            f"{len(tier.workers)} workers have {threads}; give it more before (`sluice scale {name}`), raise quantum.threads, or pause "
            f"the tier"
        )
        raise RefusedError(message)
    return [
        f"{name} begins again on the workers that are left, some seconds without output, and so when they are woken"
    ]


def _check_left(tier: TierNow, left: int, cluster: Cluster) -> None:
    """Refuse to leave a tier fewer workers at work than its budget and its minimum say: below that it is paused as a whole."""
    name, share, allowed = (
        tier.spec.name,
        target(tier.spec.name, cluster.rules).k,
        cluster.rules.budget.get(tier.spec.name),
    )
    if allowed is not None and share - left > allowed:
        message = (
            f'tier "{name}": {left} of its {share} workers would be at work, and budget.{name} lets {allowed} be away; pause the tier as a '
            f"whole: `sluice pause {name}`, or raise budget.{name} in the site file"
        )
        raise RefusedError(message)
    minimum = limits(name, cluster.rules).minimum
    if left < minimum:
        message = (
            f'tier "{name}": {left} of its workers would be at work, below its minimum of {minimum}; pause the tier as a whole: '
            f"`sluice pause {name}`, or lower shares.{name}.minimum in the site file"
        )
        raise RefusedError(message)
