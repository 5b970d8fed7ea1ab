"""Resume paused tiers."""

from collections.abc import Iterable

from sluice_ops.model.change import ChangeSpec, Step
from sluice_ops.model.wording import listed
from sluice_ops.planning.changes.kind import ANY_TIER, Kind
from sluice_ops.planning.changes.lookups import notes_on_named_tier, refuse_unknown_tiers
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
    waits_for_lock = True

    def is_of_all(self, spec: ChangeSpec) -> bool:
        """Return whether every tier is resumed."""
        return not spec.named_tiers

    def refuse(self, spec: ChangeSpec, cluster: Cluster) -> Iterable[str]:
        refuse_unknown_tiers(spec, cluster)
        return notes_on_named_tier(spec, cluster)

    def effect(self, spec: ChangeSpec) -> str:
        tiers = listed(spec.named_tiers) or "every paused tier"
        return f"{tiers} {'continue where they' if len(spec.tiers) > 1 else 'continues where it'} stopped"


KIND = Resume()
