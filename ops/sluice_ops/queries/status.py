"""The content of `sluice status`, which Airflow's page shows, too: one word, one source. Pure, but
for the free space of a disk.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sluice_ops.model.scaler import Mode
from sluice_ops.model.status import STARVED
from sluice_ops.model.wording import workers
from sluice_ops.queries import describe
from sluice_ops.queries.figures import Figures, Replaying
from sluice_ops.queries.formats import ago, clock, subject
from sluice_ops.queries.lines import PipelineShareLine, ShareLine, SourceLine, TierLine
from sluice_ops.queries.progress import progress
from sluice_ops.queries.sources import source_troubles
from sluice_ops.site import installation
from sluice_ops.site.site_file import Site, SiteError
from sluice_ops.snapshot.rules import rules_of
from sluice_ops.snapshot.view import View

OLD_SECONDS = 15.0
"""The age at which figures are old. Drivers write them every two seconds."""
OVERDUE_SECONDS = 300.0
"""The time that the return to an earlier share may take before `sluice status` reports it."""


@dataclass(frozen=True)
class Shares:
    """The shares of the tenants and of the whole pipeline."""

    lines: tuple[ShareLine, ...] = ()
    pipeline: PipelineShareLine | None = None
    notes: tuple[str, ...] = ()
    """Why the shares are unknown."""


def shares_of(view: View, read_site: Callable[[], Site]) -> Shares:
    """Return the shares of the site file under the layers."""
    try:
        rules = rules_of(read_site(), view.layers)
    except SiteError as error:
        return Shares(notes=(f"No shares: {error}.",))
    lines = describe.shares(view, rules)
    return Shares(tuple(lines), describe.pipeline_share(view, rules, lines))


def status_of(  # noqa: PLR0913, PLR0917 - the parts of a status
    view: View | None,
    shares: Shares,
    figures: Figures,
    home: Path,
    now: float,
    sources: Sequence[SourceLine] = (),
) -> dict[str, Any]:
    """Return the status as JSON values; `notes` has a line for each problem outside the lists.

    Without a view, ZooKeeper is away.
    """
    tiers = None if view is None else describe.tiers(view, figures)
    unreadable = [] if view is None else [f"{trouble}." for trouble in view.unreadable]
    return {
        "at": now,
        "zookeeper": view is not None,
        "postgres": figures.missing is None,
        "controller": None
        if view is None or view.status is None
        else view.status.model_dump(mode="json", exclude={"tiers"}),
        "doing": [] if view is None else [_dumped(step) for step in doing(view, now)],
        "hosts": [] if view is None else [line.model_dump(mode="json") for line in describe.hosts(view)],
        "tiers": [line.model_dump(mode="json") for line in tiers or []],
        "sources": [line.model_dump(mode="json") for line in sources],
        "shares": [line.model_dump(mode="json") for line in shares.lines],
        "pipeline_share": None if shares.pipeline is None else shares.pipeline.model_dump(mode="json"),
        "replays": [replay.model_dump(mode="json") for replay in figures.replays],
        "notes": [
            *source_troubles(sources),
            *_notes(figures, tiers, home, now),
            *outstayed(shares.lines, now),
            *describe.pipeline_share_notes(shares.pipeline),
            *wanted_sizes(tiers or [], shares.lines),
            *unreadable,
        ],
    }


def doing(view: View, now: float) -> list[dict[str, Any]]:
    """Return the posted steps without a result, and the change that holds the lock between two
    steps.
    """
    steps: list[dict[str, Any]] = [
        {
            "change": seen.operation.change,
            "what": f"{seen.operation.spec.kind} {subject(seen.operation.spec)}".strip(),
            "step": seen.operation.step,
            "by": seen.operation.by,
            "since": seen.operation.posted_at,
            "sentence": seen.last or "posted; the controller has not started it",
        }
        for seen in view.operations.values()
    ]
    lock = view.lock
    if lock is not None and lock.change not in {step["change"] for step in steps}:
        record = view.changes.get(lock.change)
        what = f"{record.spec.kind} {subject(record.spec)}".strip() if record else "a change"
        idle = {"change": lock.change, "what": what, "step": None, "by": lock.by, "since": lock.since}
        steps.append(
            {
                **idle,
                "sentence": "holds the maintenance lock and waits for its next step; end it: `sluice abort`",
            }
        )
    return [{**step, "progress": progress(view, step["change"], now)} for step in steps]


def _dumped(step: dict[str, Any]) -> dict[str, Any]:
    shown = step["progress"]
    return {**step, "progress": None if shown is None else shown.model_dump(mode="json")}


def _notes(figures: Figures, tiers: list[TierLine] | None, home: Path, now: float) -> list[str]:
    """Return one line for each problem outside the tables."""
    notes = [f"No figures: {figures.missing}."] if figures.missing else []
    running = (
        figures.tiers.keys() if tiers is None else {line.name for line in tiers if line.state == "running"}
    )
    old = [
        f"{name} ({ago(each.at)} old)"
        for name, each in figures.tiers.items()
        if name in running and now - each.at > OLD_SECONDS
    ]
    notes += [f"Old figures: {', '.join(old)}. The tables show the last known values."] if old else []
    notes += [
        f"{tier}: {figures.lost(tier) or 'an unknown number of'} records are LOST: `sluice audit` lists them"
        for tier in sorted({loss.tier for loss in figures.losses})
    ]
    notes += describe.release_notes(tiers or [])
    notes += [replaying(replay, now) for replay in figures.replays]
    if home.exists() and (free := installation.free(home)) < installation.LOW:
        notes.append(
            f"Disk: {free} MiB are free at {home}. Kafka, ZooKeeper and PostgreSQL stop when the disk is "
            "full, and continue when space is free again."
        )
    return notes


def replaying(replay: Replaying, now: float) -> str:
    """Return a line about a replay: its progress and remaining time, or that its process
    stopped.
    """
    name = f"Replay {replay.number} of {replay.tier}"
    done = (
        f"{name}: {replay.rows_out} written, {replay.dropped} dropped as duplicates, "
        f"{replay.left} of {replay.source} left"
    )
    if now > replay.said_at + OLD_SECONDS:
        next_step = f"`sluice replay --resume {replay.number}`, or --cancel {replay.number}"
        return f"{done}; stopped {ago(replay.said_at)} ago: {next_step}"
    if not replay.pace:
        return f"{done}; the replay {replay.sentence or 'begins'}"
    remaining = f"{done}, about {replay.left / replay.pace:.0f} s at {replay.pace:.0f}/s"
    return remaining + (f"; the replay {replay.sentence}" if replay.sentence else "")


def outstayed(shares: Sequence[ShareLine], now: float) -> list[str]:
    """Return a line for each temporary share that is still in force after its end."""
    return [
        f"{share.tenant} still has its temporary share ({share.slots}, by {share.by}), which ended at "
        f"{clock(share.until)}: the return waits for another change, or failed and is retried. "
        "See `sluice operations`"
        for share in shares
        if share.until is not None and share.until < now - OVERDUE_SECONDS
    ]


def wanted_sizes(tiers: list[TierLine], shares: Sequence[ShareLine]) -> list[str]:
    """Return a line for each tier that the scaler would give another number of workers."""
    extra = {share.tenant: share.extra for share in shares}
    lines = []
    for tier in tiers:
        decision, away = tier.scaler, extra.get(tier.name, 0)
        if decision is None or decision.mode == Mode.OFF or not tier.workers:
            continue
        at_home = sum(worker.state != "spare" for worker in tier.workers) - away
        # paused workers are in the first number only; the second one is up to 15 s old
        if decision.wanted in {at_home, decision.slots - away}:
            continue
        number = f"{workers(decision.wanted)} instead of {at_home}: {decision.reason}"
        lines.append(
            f"{tier.name}: the scaler sets {number}"
            if decision.mode == Mode.ACT
            else f"{tier.name}: the scaler advises {number}. To let it act: `sluice scaler act {tier.name}`"
        )
    return lines


def troubles(tiers: list[TierLine]) -> list[str]:
    """Return a line for each problem of a tier.

    Problems: a tier is down, hung or starved, does not use all partitions, or lags.
    """
    down = [
        f"{tier.name}: {tier.sentence}" + (f". Last error: {tier.error}" if tier.error else "")
        for tier in tiers
        if tier.state not in {"running", "paused", "stopped"}
    ]
    lagging = []
    for tier in tiers:
        throttled = [other.name for other in tiers if other.held_for == tier.name]
        if tier.pressure is not None:
            lagging.append(
                f"{tier.name} {tier.pressure}"
                + (f". Throttled until it has caught up: {', '.join(throttled)}" if throttled else "")
            )
    unread = [
        f"{tier.name} does not read the added partitions: {tier.unread}"
        for tier in tiers
        if tier.unread is not None
    ]
    narrow = [
        f"{tier.name} does not write to the added partitions yet: {tier.narrow}"
        for tier in tiers
        if tier.narrow is not None
    ]
    hung = [f"{tier.name}: {tier.hung}" for tier in tiers if tier.hung is not None]
    drifted = [f"{tier.name} {tier.drift}" for tier in tiers if tier.drift is not None]
    return [*down, *hung, *_starved(tiers), *unread, *narrow, *lagging, *drifted]


def _starved(tiers: list[TierLine]) -> list[str]:
    """Return one line for all starved tiers with the same remedy."""
    by_remedy: dict[str, list[str]] = {}
    for tier in tiers:
        if tier.starved is not None:
            hosts, _, remedy = tier.starved.partition(": ")
            by_remedy.setdefault(remedy, []).append(f"{tier.name} on {hosts.removeprefix(STARVED)}")
    return [
        f"Starved of processor time: {'; '.join(starved)}. {remedy[:1].upper()}{remedy[1:]}."
        for remedy, starved in by_remedy.items()
    ]
