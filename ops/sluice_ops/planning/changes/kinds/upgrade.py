"""Hand a tier over to other code."""

from collections.abc import Iterable

from sluice_ops.model.change import UPGRADE, ChangeSpec, Step
from sluice_ops.model.incarnation import Placement
from sluice_ops.model.release import number_of
from sluice_ops.planning.changes.compatibility import problems
from sluice_ops.planning.changes.kind import TIER, Field, Input, Kind, TierCheck
from sluice_ops.planning.changes.lookups import notes_if_stopped, tier_of
from sluice_ops.planning.placement.cluster import Cluster, RefusedError, TierNow
from sluice_ops.planning.placement.shares import Target

BY_VALUE = ("Fields(", "Direct(")
"""The groupings whose partition follows from a value that the transform makes."""


class Upgrade(Kind):
    name = UPGRADE
    summary = (
        "Hand a tier over to other code while records flow; the tier goes back by itself when it does "
        "worse than before."
    )
    details = (
        "An upgrade is refused when other tiers, the table or the state could not go on with the new "
        "code. After the handover the code is tried for a while. A tier that goes back turns the run "
        "red."
    )
    example = "sluice upgrade enrich, or: sluice upgrade enrich --release r7-3f9a2c1b"
    steps = (Step.PREFLIGHT, Step.PREPARE, Step.CUT, Step.VERIFY, Step.TRIAL, Step.RELEASE)
    fields = (
        TIER,
        Field(
            "release",
            Input.RELEASE,
            "The release; without it, the one that was published last.",
            required=False,
            option=True,
        ),
    )
    runbook = "upgrade_tier"
    sets_tier = True

    def complete(self, spec: ChangeSpec, tier_release: str | None) -> ChangeSpec:
        """Name the release once for all steps: others may be published meanwhile."""
        return spec if spec.release is not None else spec.model_copy(update={"release": tier_release})

    def refuse(self, spec: ChangeSpec, cluster: Cluster) -> Iterable[str]:
        """Raise RefusedError for what is unknown or impossible; return notes on the rest."""
        tier = tier_of(spec, cluster)
        name = tier.spec.name
        _refuse_unread([spec.release], cluster)
        if spec.release is None or spec.release not in cluster.releases:
            known = (
                ", ".join(sorted(cluster.releases, key=number_of))
                or "none, `python -m sluice.commands.publish` makes one"
            )
            message = f"there is no release {spec.release or 'yet'}; known releases: {known}"
            raise RefusedError(message)
        after = cluster.releases[spec.release].tiers.get(name)
        if after is None:
            having = ", ".join(
                sorted((each.name for each in cluster.releases.values() if name in each.tiers), key=number_of)
            )
            message = f'release {spec.release} has no tier "{name}"; these have it: {having or "none"}'
            raise RefusedError(message)
        if tier.release == spec.release:
            return [f"{name} runs {spec.release} already"]
        if tier.placement is not None:
            _refuse_unread((now.release for now in (tier, *cluster.end_first())), cluster)
        before = None if tier.release is None else cluster.shape(name, tier.release)
        if before is None:
            return [
                f"{name} runs no release that is known: nothing could be compared, and there is no way back",
                *notes_if_stopped(tier),
            ]
        others = {
            other: shape
            for other, now in cluster.tiers.items()
            if (shape := cluster.shape(other, now.release)) is not None
        }
        wrong = problems(name, before, after, others)
        if wrong and tier.placement is not None:
            message = (
                f'tier "{name}" cannot be handed over from {tier.release} to {spec.release}: {"; ".join(wrong)}. '
                f"To change it nevertheless, knowing what becomes of it: `sluice stop {name}`, `sluice upgrade {name}`, `sluice start {name}`"
            )
            raise RefusedError(message)
        if tier.failed:
            return [f"{name} has failed: it is started with {spec.release} at once, and there is no trial"]
        spread = [stream.name for stream in after.outputs if stream.grouping.startswith(BY_VALUE)]
        note = (
            f"{', '.join(spread)} is spread by what its records hold: one that the new code gives another value there takes another way, and "
            f"where both codes put it out, during the hand-over, a table that adds up counts it twice"
        )
        return [*wrong, *([note] if spread else ()), *notes_if_stopped(tier)]

    def must_move(
        self, spec: ChangeSpec, tier: TierNow, now: Placement, aim: Target, cluster: Cluster
    ) -> bool:
        """Tell whether the tier is not yet as the change wants it."""
        return tier.release != spec.release

    def unmet(self, spec: ChangeSpec, tier: TierNow, now: Placement, check: TierCheck) -> Iterable[str]:
        """Say, for the checker, what is not as the change wants it."""
        return [f"runs {tier.release}"] if tier.release != spec.release else []


KIND = Upgrade()


def _refuse_unread(releases: Iterable[str | None], cluster: Cluster) -> None:
    """Refuse what would rest on a release that is there and cannot be read."""
    for release in releases:
        if release is not None and (said := cluster.unread_releases.get(release)) is not None:
            raise RefusedError(said)
