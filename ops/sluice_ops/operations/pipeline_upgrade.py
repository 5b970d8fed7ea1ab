"""An upgrade of the whole pipeline in the channel: begin it or continue it, tier after tier.

Its node has what the next step needs, and the upgrade of each tier is one change whose id follows
from the node. So a caller that was killed goes on where it was: no upgrade begins twice.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from sluice_ops.channel import ANY_VERSION, Channel, Write
from sluice_ops.model import paths
from sluice_ops.model.change import UPGRADE, ChangeSpec, PartOf, Result
from sluice_ops.model.ids import ChangeId, TierName
from sluice_ops.model.pipeline_upgrade import PipelineUpgrade
from sluice_ops.model.release import Release, number_of
from sluice_ops.operations import requests, run_nodes
from sluice_ops.operations.ends import End, StoppedError, end_of, why_failed
from sluice_ops.planning import pipeline_upgrade
from sluice_ops.planning.pipeline_upgrade import Next, Order, TierRuns, Turn
from sluice_ops.planning.placement.cluster import RefusedError
from sluice_ops.snapshot.view import TierView, View, read_view

PLAN_SECONDS = 60.0
"""How long the plan of the first tier's upgrade may take."""


@dataclass(frozen=True)
class Begun:
    """An upgrade that begins or continues, with what a run says first."""

    upgrade: PipelineUpgrade
    sentences: tuple[str, ...]


def begin(  # noqa: PLR0913 - the fields of the form
    channel: Channel,
    release: str | None,
    canary: str | None,
    *,
    run: str,
    by: str,
    now: float,
    dry_run: bool = False,
) -> Begun:
    """Begin an upgrade of all tiers, or continue the one to the same release that has not ended.

    Without a release, the newest. A dry run writes nothing. RefusedError if no order of the tiers
    is compatible. ConflictError if another run begins at the same time.
    """
    view = read_view(channel)
    if view.unreadable:
        raise RefusedError("; ".join(view.unreadable))
    target = _release(view, release)
    read = channel.read(paths.PIPELINE_UPGRADE, PipelineUpgrade)
    earlier = None if read is None else read.value
    if earlier is not None and earlier.run == run:
        return Begun(earlier, ())
    if earlier is not None and not earlier.ended and earlier.release == target.name:
        if earlier.tier is not None and (end := end_of(channel, change_of(earlier))) is not End.UNDER_WAY:
            earlier = _without_tier(earlier, end)
        upgrade = earlier.model_copy(update={"run": run})
        sentences = [f"continues the upgrade to {target.name} that {upgrade.by} began"]
        if upgrade.failed:
            sentences.append(f"goes back, because {upgrade.failed}")
    else:
        planned = _order(view, target, None if canary is None else TierName(canary))
        runs = releases_now(view)
        before = {tier: runs[tier] for tier in planned.tiers}
        upgrade = PipelineUpgrade(release=target.name, run=run, by=by, begun_at=now, before=before)
        order = ", ".join(planned.tiers) or "no tier"
        sentences = [f"upgrades to {target.name}, in this order: {order}", *planned.notes]
    if not dry_run:
        channel.multi([Write(paths.PIPELINE_UPGRADE, upgrade, None if read is None else read.version)])
    return Begun(upgrade, tuple(sentences))


def _release(view: View, name: str | None) -> Release:
    if name is None and view.releases:
        name = max(view.releases, key=number_of)
    if name is not None and name in view.releases:
        return view.releases[name]
    missing = "no release has been published" if name is None else f"there is no release {name}"
    names = ", ".join(sorted(view.releases, key=number_of)) or "none, `sluice publish` makes one"
    message = f"{missing}; known releases: {names}"
    raise RefusedError(message)


def _order(view: View, release: Release, canary: TierName | None) -> Order:
    tiers = sorted(view.tiers.values(), key=lambda tier: (tier.spec.distance, tier.spec.name))
    return pipeline_upgrade.order([_tier(view, tier) for tier in tiers], release, canary)


def _tier(view: View, tier: TierView) -> TierRuns:
    name = _accepted(tier)
    release = None if name is None else view.releases.get(name)
    shape = None if release is None else release.tiers.get(tier.spec.name)
    return TierRuns(tier.spec.name, name, shape, tier.wanted.running)


def _accepted(tier: TierView) -> str | None:
    """Return the release that a tier runs, or will run again after a failed upgrade."""
    if tier.wanted.release is not None:
        return tier.wanted.release
    owner = None if tier.owner.owner is None else tier.incarnations.get(tier.owner.owner)
    return tier.spec.release if owner is None or not tier.wanted.running else owner.release


def releases_now(view: View) -> dict[TierName, str | None]:
    """Return the accepted release of each tier."""
    return {name: _accepted(tier) for name, tier in view.tiers.items()}


def plan(channel: Channel, upgrade: PipelineUpgrade, by: str) -> tuple[TierName, Result] | None:
    """Have the controller plan the upgrade of the first tier; None if there is none.

    The others depend on the tiers before them.
    """
    turn = next_turn(channel, upgrade)
    if not isinstance(turn, Next):
        return None
    change = requests.change_id("plan", upgrade.run)
    ((_, result),) = requests.run(channel, change, spec_of(upgrade, turn), by, PLAN_SECONDS, dry_run=True)
    return turn.tier, result


def spec_of(upgrade: PipelineUpgrade, turn: Next) -> ChangeSpec:
    """Return the change that upgrades a tier."""
    part_of = PartOf(run=_changes(upgrade), tiers=tuple(upgrade.before))
    return ChangeSpec(kind=UPGRADE, tier=turn.tier, release=turn.release, part_of=part_of)


def under_way(upgrade: PipelineUpgrade) -> Next | None:
    """Return the tier and release of the last change, unless its end was written down."""
    if upgrade.tier is None:
        return None
    release = upgrade.before[upgrade.tier] if upgrade.failed else upgrade.release
    return None if release is None else Next(upgrade.tier, release)


def change_of(upgrade: PipelineUpgrade) -> ChangeId:
    """Return the id of the last change."""
    return requests.change_id(_changes(upgrade), str(upgrade.number))


def _changes(upgrade: PipelineUpgrade) -> str:
    return f"upgrade-pipeline-{upgrade.begun_at:.3f}"


def continue_(channel: Channel, run: str) -> PipelineUpgrade:
    """Return the upgrade of this run; it has a `tier` if a change is under way.

    A change that ended is written down; after a failed upgrade, the upgraded tiers go back.
    StoppedError if another run has taken over, or if a tier could not go back.
    """
    try:
        read = run_nodes.read_own(channel, paths.PIPELINE_UPGRADE, PipelineUpgrade, run)
    except StoppedError as error:
        message = f"the upgrade of the pipeline stopped here: {error}"
        raise StoppedError(message) from error
    upgrade = read.value
    if upgrade.tier is None:
        return upgrade
    end = end_of(channel, change_of(upgrade))
    if end is End.UNDER_WAY:
        return upgrade
    ended = _without_tier(upgrade, end)
    if end is End.BADLY:
        why = f"{upgrade.tier}: {why_failed(channel, change_of(upgrade), UPGRADE)}"
        if upgrade.failed:
            raise StoppedError(stopped(channel, upgrade, why))
        ended = ended.model_copy(update={"failed": why})
    channel.multi([Write(paths.PIPELINE_UPGRADE, ended, read.version)])
    return ended


def is_unanswered(channel: Channel, upgrade: PipelineUpgrade) -> bool:
    """Tell whether no controller has ended the last change, although its caller gave up."""
    return end_of(channel, change_of(upgrade)) is End.UNDER_WAY


def _without_tier(upgrade: PipelineUpgrade, end: End) -> PipelineUpgrade:
    forward = end is End.WELL and not upgrade.failed and upgrade.tier is not None
    upgraded = (*upgrade.upgraded, upgrade.tier) if forward else upgrade.upgraded
    return upgrade.model_copy(update={"tier": None, "upgraded": upgraded})


def next_turn(channel: Channel, upgrade: PipelineUpgrade) -> Turn:
    """Return what comes next, while no change of the upgrade is under way."""
    return pipeline_upgrade.next_turn(upgrade, releases_now(read_view(channel)))


def take(channel: Channel, upgrade: PipelineUpgrade, turn: Next) -> PipelineUpgrade:
    """Write down the tier whose change is posted next. ConflictError if another run has written."""
    taken = upgrade.model_copy(update={"number": upgrade.number + 1, "tier": turn.tier})
    return run_nodes.replace(channel, paths.PIPELINE_UPGRADE, upgrade, taken)


def finish(channel: Channel, upgrade: PipelineUpgrade) -> None:
    """Write down that nothing is left to do, so that the next run begins anew."""
    ended = upgrade.model_copy(update={"ended": True})
    channel.multi([Write(paths.PIPELINE_UPGRADE, ended, ANY_VERSION)])


def stopped(channel: Channel, upgrade: PipelineUpgrade, reason: str) -> str:
    """Return why the upgrade stopped before its end, what runs now, and the next step."""
    runs: Mapping[TierName, str | None] = releases_now(read_view(channel))
    return pipeline_upgrade.stopped(upgrade, runs, reason)
