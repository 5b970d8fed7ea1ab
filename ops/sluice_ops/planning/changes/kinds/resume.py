"""Resume paused tiers."""

from collections.abc import Iterable

from sluice_ops.model.change import ChangeSpec, Step
from sluice_ops.planning.changes.kind import ANY_TIER, Kind
from sluice_ops.planning.changes.lookups import notes_on_named_tier
from sluice_ops.planning.placement.cluster import Cluster


class Resume(Kind):
    name = "resume"
    summary = (
        "Resume a paused tier, or the pipeline, where it stopped, and wake workers that were paused alone."
    )
    example = "sluice resume"
    steps = (Step.PREFLIGHT, Step.RESUME)
    fields = (ANY_TIER,)
    runbook = "resume_pipeline"

    def is_of_all(self, spec: ChangeSpec) -> bool:
        """Tell whether every tier is resumed."""
        return spec.tier is None

    def refuse(self, spec: ChangeSpec, cluster: Cluster) -> Iterable[str]:
        """Raise RefusedError for what is unknown or impossible; return notes on the rest."""
        return notes_on_named_tier(spec, cluster)

    def effect(self, spec: ChangeSpec) -> str:
        """Say what the change does."""
        return f"{spec.tier or 'every tier that was paused'} goes on from where it stands"


KIND = Resume()
