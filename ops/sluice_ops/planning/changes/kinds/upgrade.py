"""Upgrade: hand a tier over to another release."""

from collections.abc import Iterable

from sluice_ops.model.change import UPGRADE, ChangeSpec, Step
from sluice_ops.model.compatibility import incompatibilities
from sluice_ops.model.incarnation import Placement
from sluice_ops.model.release import number_of
from sluice_ops.planning.changes.kind import TIER, Field, Input, Kind, TierCheck
from sluice_ops.planning.changes.lookups import notes_if_stopped, tier_of
from sluice_ops.planning.placement.cluster import Cluster, RefusedError, TierNow
from sluice_ops.planning.placement.shares import Target

BY_VALUE = ("Fields(", "Direct(")
"""How the groupings begin that choose the partition by a value that the transform makes."""


class Upgrade(Kind):
    name = UPGRADE
    summary = (
        "Hand a tier over to another release while records flow. "
        "Sluice rolls back if the new code does worse."
    )
    details = (
        "Sluice refuses an upgrade if other tiers, the table or the state could not continue with the "
        "new code. After the handover, the new code is on trial for a while. A rollback turns the run "
        "red."
    )
    example = "sluice upgrade enrich, or: sluice upgrade enrich --release r7-3f9a2c1b"
    steps = (Step.PREFLIGHT, Step.PREPARE, Step.CUT, Step.VERIFY, Step.TRIAL, Step.RELEASE)
    fields = (
        TIER,
        Field(
            "release",
            Input.RELEASE,
            "The release, such as r7-3f9a2c1b. Without it, the release that was published last.",
            required=False,
            option=True,
        ),
    )
    runbook = "upgrade_tier"
    sets_tier = True
    waits_for_lock = True

    def complete(self, spec: ChangeSpec, tier_release: str | None, cluster: Cluster) -> ChangeSpec:
        """Fix the release for all steps, because another one may be published meanwhile."""
        return spec if spec.release is not None else spec.model_copy(update={"release": tier_release})

    def refuse(self, spec: ChangeSpec, cluster: Cluster) -> Iterable[str]:
        tier = tier_of(spec, cluster)
        name = tier.spec.name
        _refuse_unread([spec.release], cluster)
        if spec.release is None or spec.release not in cluster.releases:
            names = ", ".join(sorted(cluster.releases, key=number_of)) or "none, `sluice publish` makes one"
            missing = (
                "no release has been published"
                if spec.release is None
                else f"there is no release {spec.release}"
            )
            message = f"{missing}; known releases: {names}"
            raise RefusedError(message)
        after = cluster.releases[spec.release].tiers.get(name)
        if after is None:
            with_tier = ", ".join(
                sorted(
                    (release.name for release in cluster.releases.values() if name in release.tiers),
                    key=number_of,
                )
            )
            message = (
                f'release {spec.release} has no tier "{name}"; releases that have it: {with_tier or "none"}'
            )
            raise RefusedError(message)
        if tier.release == spec.release:
            return [f"{name} already runs {spec.release}"]
        if tier.placement is not None:
            _refuse_unread((now.release for now in (tier, *cluster.end_first())), cluster)
        before = None if tier.release is None else cluster.shape(name, tier.release)
        if before is None:
            return [
                f"{name} runs no known release, so Sluice cannot compare the code and cannot roll back",
                *notes_if_stopped(tier),
            ]
        others = {
            other: shape
            for other, now in cluster.tiers.items()
            if (shape := cluster.shape(other, now.release)) is not None
        }
        incompatible = incompatibilities(name, before, after, others)
        if incompatible and tier.placement is not None:
            message = (
                f'tier "{name}" cannot be handed over from {tier.release} to {spec.release}: '
                f"{'; '.join(incompatible)}. To upgrade anyway and accept these effects, run "
                f"`sluice stop {name}`, `sluice upgrade {name} --release {spec.release}`, "
                f"`sluice start {name}`"
            )
            raise RefusedError(message)
        if tier.failed:
            return [f"{name} has failed: it is started with {spec.release} at once, without a trial"]
        grouped = [stream.name for stream in after.outputs if stream.grouping.startswith(BY_VALUE)]
        note = (
            f"values that the transform makes choose the partitions of {', '.join(grouped)}. "
            "If the new code makes the same values, this is safe. If it makes another value of a record, "
            "and both codes write the record during the handover, a table that adds up counts it twice"
        )
        return [*incompatible, *([note] if grouped else ()), *notes_if_stopped(tier)]

    def must_move(
        self, spec: ChangeSpec, tier: TierNow, now: Placement, aim: Target, cluster: Cluster
    ) -> bool:
        return tier.release != spec.release

    def unmet(self, spec: ChangeSpec, tier: TierNow, now: Placement, check: TierCheck) -> Iterable[str]:
        return [f"runs {tier.release}"] if tier.release != spec.release else []


KIND = Upgrade()


def _refuse_unread(releases: Iterable[str | None], cluster: Cluster) -> None:
    """Raise RefusedError if one of the releases exists but cannot be read."""
    for release in releases:
        if release is not None and (message := cluster.unread_releases.get(release)) is not None:
            raise RefusedError(message)
