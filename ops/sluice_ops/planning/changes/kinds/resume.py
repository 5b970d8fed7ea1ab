"""Resume paused tiers."""

from collections.abc import Iterable

from sluice_ops.model.change import ChangeSpec, Step
from sluice_ops.planning.changes.kind import ANY_TIER, Kind
from sluice_ops.planning.changes.lookups import notes_on_named_tier
from sluice_ops.planning.placement.cluster import Cluster


class Resume(Kind):
    name = "resume"
    summary = (
        "Resume a tier or the whole pipeline where it stopped. Workers that were paused alone are "
        "resumed, too."
    )
    example = "sluice resume"
    steps = (Step.PREFLIGHT, Step.RESUME)
    fields = (ANY_TIER,)
    runbook = "resume_pipeline"

    def is_of_all(self, spec: ChangeSpec) -> bool:
        """Return whether every tier is resumed."""
        return spec.tier is None

    def refuse(self, spec: ChangeSpec, cluster: Cluster) -> Iterable[str]:
        return notes_on_named_tier(spec, cluster)

    def effect(self, spec: ChangeSpec) -> str:
        return f"{spec.tier or 'every paused tier'} continues where it stopped"


KIND = Resume()
