"""Pause tiers, or single workers."""

from collections.abc import Iterable

from sluice_ops.model.assignment import UnitKind
from sluice_ops.model.change import ChangeSpec, Step
from sluice_ops.model.ids import TierName, UnitId
from sluice_ops.model.tier import Mode
from sluice_ops.model.wording import listed
from sluice_ops.planning.changes.kind import ANY_TIER, Field, Input, Kind
from sluice_ops.planning.changes.lookups import notes_on_named_tier, refuse_light
from sluice_ops.planning.placement.cluster import Cluster, RefusedError, TierNow
from sluice_ops.planning.placement.shares import limits, target


class Pause(Kind):
    name = "pause"
    summary = (
        "Pause a tier, single workers, or the whole pipeline. Slots and Spark sessions stay; records wait "
        "in the streams."
    )
    details = (
        "Sluice pauses the tier nearest the pipeline's end first. With workers, Sluice pauses only "
        "these workers, of tiers without state, until the tier is resumed or handed over; the other "
        "workers continue. `resume_pipeline` continues exactly where the pipeline stopped."
    )
    example = "sluice pause outbound --deadline 60, or: sluice pause --worker slot-counts-3-1"
    steps = (Step.PREFLIGHT, Step.PAUSE)
    fields = (
        ANY_TIER,
        Field(
            "workers",
            Input.WORKERS,
            "Single workers to pause, by their slots as `sluice slots` lists them.",
            required=False,
            option=True,
        ),
    )
    runbook = "pause_pipeline"

    def is_of_all(self, spec: ChangeSpec) -> bool:
        """Return whether every tier is paused."""
        return spec.tier is None and not spec.workers

    def refuse(self, spec: ChangeSpec, cluster: Cluster) -> Iterable[str]:
        by_tier: dict[TierName, list[UnitId]] = {}
        for worker in spec.workers:
            by_tier.setdefault(_tier_of_worker(worker, cluster), []).append(worker)
        notes = [
            note
            for name, workers in by_tier.items()
            for note in _check_workers(cluster.tiers[name], workers, spec, cluster)
        ]
        return [*notes, *notes_on_named_tier(spec, cluster)]

    def effect(self, spec: ChangeSpec) -> str:
        if spec.workers:
            workers = ", ".join(spec.workers)
            return (
                f"{workers}: finishes its tasks and gets no more until the tier is resumed; "
                "other workers continue"
            )
        return (
            f"{spec.tier or 'every tier'} writes nothing until it is resumed; its input waits in the streams"
        )


KIND = Pause()


def _tier_of_worker(worker: UnitId, cluster: Cluster) -> TierName:
    for name, tier in cluster.tiers.items():
        if worker in tier.workers:
            return name
    for name, tier in cluster.tiers.items():
        if worker.startswith(f"{UnitKind.SLOT}-{name}-") and not tier.workers:
            refuse_light(tier)
    workers = listed(sorted(slot for tier in cluster.tiers.values() for slot in tier.workers)) or "none"
    message = f'there is no worker "{worker}"; `sluice slots` lists the workers: {workers}'
    raise RefusedError(message)


def _check_workers(tier: TierNow, workers: list[UnitId], spec: ChangeSpec, cluster: Cluster) -> Iterable[str]:
    """Return notes; raise RefusedError if the tier could not continue without these workers."""
    name = tier.spec.name
    if spec.tier == name:
        message = f"the pause names both {name} and its workers {', '.join(workers)}; name one or the other"
        raise RefusedError(message)
    if tier.spec.state:
        message = (
            f'tier "{name}" keeps state in its workers, so a single worker cannot be paused; pause the tier '
            f"with `sluice pause {name}`, or give it fewer workers with `sluice scale {name} K`"
        )
        raise RefusedError(message)
    left = len({*tier.workers} - {*tier.paused_workers, *workers})
    if not left:
        message = f'tier "{name}" would have no worker left; pause the whole tier: `sluice pause {name}`'
        raise RefusedError(message)
    if not {*workers} <= {*tier.paused_workers}:
        _check_left(tier, left, cluster)
    if tier.spec.mode is not Mode.REALTIME:
        return []
    partitions, threads = cluster.rules.partitions_of(tier.spec), left * tier.spec.quantum.threads
    if threads < partitions:
        message = (
            f'tier "{name}": a realtime tier needs one thread for each of its {partitions} partitions, but '
            f"{left} of its {len(tier.workers)} workers have {threads}; first add workers "
            f"(`sluice scale {name} K`) or raise quantum.threads, or pause the whole tier with "
            f"`sluice pause {name}`"
        )
        raise RefusedError(message)
    note = (
        f"{name} restarts its query on the other workers and writes nothing for some seconds; "
        "the same happens when the workers are resumed"
    )
    return [note]


def _check_left(tier: TierNow, left: int, cluster: Cluster) -> None:
    """Raise RefusedError if fewer workers would work than the tier's budget or minimum allows.

    Below that, the whole tier has to be paused.
    """
    name, share, allowed = (
        tier.spec.name,
        target(tier.spec.name, cluster.rules).at_work,
        cluster.rules.budget.get(tier.spec.name),
    )
    if allowed is not None and share - left > allowed:
        message = (
            f'tier "{name}": {left} of its {share} workers would work, but budget.{name} allows {allowed} to '
            f"be missing; pause the whole tier with `sluice pause {name}`, or raise budget.{name} in the "
            "site file"
        )
        raise RefusedError(message)
    minimum = limits(name, cluster.rules).minimum
    if left < minimum:
        message = (
            f'tier "{name}": {left} of its workers would work, below its minimum of {minimum}; pause the '
            f"whole tier with `sluice pause {name}`, or lower shares.{name}.minimum in the site file"
        )
        raise RefusedError(message)
