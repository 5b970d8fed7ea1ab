"""The order in which the tiers of a pipeline are upgraded, and what comes next. Pure.

The caller reads the channel, and carries out what `next_turn` says.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sluice_ops.model.compatibility import incompatibilities
from sluice_ops.model.ids import TierName
from sluice_ops.model.pipeline_upgrade import PipelineUpgrade
from sluice_ops.model.release import Release, TierShape
from sluice_ops.model.wording import listed
from sluice_ops.planning.placement.cluster import RefusedError


@dataclass(frozen=True)
class TierRuns:
    """A tier as an upgrade of the pipeline sees it."""

    name: TierName
    release: str | None
    """The accepted release; None: no known one."""
    shape: TierShape | None
    """Its shape in that release."""
    running: bool


@dataclass(frozen=True)
class Order:
    """The tiers to upgrade, in order, and notes on tiers that are left out or cannot go back."""

    tiers: tuple[TierName, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Next:
    """Upgrade this tier to this release."""

    tier: TierName
    release: str


@dataclass(frozen=True)
class Complete:
    """Every tier runs the release."""

    sentence: str


@dataclass(frozen=True)
class Returned:
    """The upgrade failed, and every tier that could go back is back."""

    sentence: str


Turn = Next | Complete | Returned


def order(tiers: Sequence[TierRuns], release: Release, canary: TierName | None) -> Order:
    """Return the tiers that need the release, in an order in which each fits the others.

    `tiers` are nearest the pipeline's end first, the order in which compatible tiers keep. A tier
    that could not go back comes as late as possible. RefusedError if there is no such order, or if
    the canary cannot be first.
    """
    left = [tier for tier in tiers if tier.name in release.tiers and tier.release != release.name]
    shapes = {tier.name: tier.shape for tier in tiers}
    if canary is not None and canary not in {tier.name for tier in left}:
        _refuse_canary(canary, tiers, release)
    left.sort(key=lambda tier: (tier.name != canary, bool(_way_back(tier, release, {}))))
    done: list[TierRuns] = []
    while left:
        against = {tier.name: _against(tier, release, shapes) for tier in left}
        fitting = left[0] if canary is not None and not done else None
        if fitting is None:
            fitting = next((tier for tier in left if not against[tier.name]), left[0])
        if against[fitting.name]:
            _refuse_order(left if fitting.name != canary else [fitting], against, release)
        left.remove(fitting)
        done.append(fitting)
        shapes[fitting.name] = release.tiers[fitting.name]
    return Order(tuple(tier.name for tier in done), tuple(_notes(tiers, done, release, shapes)))


def _against(tier: TierRuns, release: Release, shapes: Mapping[TierName, TierShape | None]) -> list[str]:
    """Return why a tier cannot be upgraded while the others have these shapes."""
    if tier.shape is None or not tier.running:
        return []
    return incompatibilities(tier.name, tier.shape, release.tiers[tier.name], _known(shapes))


def _way_back(tier: TierRuns, release: Release, shapes: Mapping[TierName, TierShape | None]) -> list[str]:
    """Return why a tier could not go back while the others have these shapes."""
    if tier.shape is None:
        return ["Sluice does not know the code that it runs"]
    if not tier.running:
        return []
    return incompatibilities(tier.name, release.tiers[tier.name], tier.shape, _known(shapes))


def _known(shapes: Mapping[TierName, TierShape | None]) -> dict[TierName, TierShape]:
    return {name: shape for name, shape in shapes.items() if shape is not None}


def _refuse_canary(canary: TierName, tiers: Sequence[TierRuns], release: Release) -> None:
    runs = next((tier for tier in tiers if tier.name == canary), None)
    if runs is None:
        message = f"there is no tier {canary!r}; known tiers: {listed(tier.name for tier in tiers)}"
    elif canary not in release.tiers:
        message = f"release {release.name} has no tier {canary!r}; name another canary"
    else:
        message = (
            f"{canary} already runs {release.name}, so it cannot be the canary; name another tier, or none"
        )
    raise RefusedError(message)


def _refuse_order(
    left: Sequence[TierRuns], against: Mapping[TierName, Sequence[str]], release: Release
) -> None:
    reasons = "; ".join(f"{tier.name}: {', '.join(against[tier.name])}" for tier in left)
    message = (
        f"no order of upgrades to {release.name} keeps the tiers compatible: {reasons}. Nothing was changed. "
        "Publish code that fits, or another canary; or stop, upgrade and start these tiers by hand"
    )
    raise RefusedError(message)


def _notes(
    tiers: Sequence[TierRuns],
    done: Sequence[TierRuns],
    release: Release,
    shapes: Mapping[TierName, TierShape | None],
) -> Iterable[str]:
    for tier in tiers:
        if tier.name not in release.tiers:
            yield f"{tier.name} is left out: release {release.name} has no such tier"
    now = dict(shapes)
    for tier in reversed(done):
        why = _way_back(tier, release, now)
        if why and tier is not done[-1]:  # its own trial takes the last one back, and no other can fail
            yield f"if a later tier fails, {tier.name} cannot go back by itself: {'; '.join(why)}"
        now[tier.name] = tier.shape


def next_turn(upgrade: PipelineUpgrade, runs: Mapping[TierName, str | None]) -> Turn:
    """Return what to do next, while no change of this upgrade is under way.

    `runs` is the accepted release of each tier. A tier that another change has taken elsewhere is
    left alone.
    """
    if not upgrade.failed:
        for tier in upgrade.before:
            if tier in runs and tier not in upgrade.upgraded and runs[tier] != upgrade.release:
                return Next(tier, upgrade.release)
        return Complete(f"{listed(upgrade.upgraded) or 'no tier'} upgraded; {releases(runs)}")
    for tier in reversed(upgrade.upgraded):
        before = upgrade.before[tier]
        if before is not None and runs.get(tier) == upgrade.release:
            return Next(tier, before)
    return Returned(stopped(upgrade, runs))


def stopped(upgrade: PipelineUpgrade, runs: Mapping[TierName, str | None], reason: str = "") -> str:
    """Return why an upgrade ended before its end, what runs now, and the next step.

    `reason` is why it stopped just now, if that is not its first failure.
    """
    whole = f"the upgrade of the pipeline to {upgrade.release}"
    again = f"`sluice upgrade-pipeline --release {upgrade.release}`"
    if not upgrade.failed:
        return (
            f"{whole} stopped: {reason}. Now {releases(runs)}. To continue: {again}, or trigger "
            "upgrade_pipeline again"
        )
    failed = f"{whole} failed: {upgrade.failed}"
    if reason:
        return (
            f"{failed}. Going back stopped: {reason}. Now {releases(runs)}. To go on with going back: {again}"
        )
    stays = [tier for tier in upgrade.upgraded if runs.get(tier) == upgrade.release]
    back = [tier for tier in reversed(upgrade.upgraded) if tier not in stays]
    went = f". These tiers went back, in this order: {listed(back)}" if back else ""
    stay = f". {listed(stays)} cannot go back: its former release is unknown" if stays else ""
    return f"{failed}{went}{stay}. Now {releases(runs)}. Correct the code, publish, and upgrade again"


def releases(runs: Mapping[TierName, str | None]) -> str:
    """Return which tiers run which release."""
    by_release: dict[str, list[str]] = {}
    for tier, release in runs.items():
        by_release.setdefault(release or "no known release", []).append(tier)
    return "; ".join(f"{listed(names)} on {release}" for release, names in sorted(by_release.items()))
