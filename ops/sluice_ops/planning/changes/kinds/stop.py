"""Stop a tier."""

from collections.abc import Iterable

from sluice_ops.model.change import STOP, ChangeSpec, Plan, Step
from sluice_ops.model.tier import Standby
from sluice_ops.model.wording import listed
from sluice_ops.planning.changes.kind import TIER, Kind, with_predicted_time
from sluice_ops.planning.changes.lookups import tier_of
from sluice_ops.planning.placement.cluster import Cluster


class Stop(Kind):
    name = STOP
    summary = "Stop a tier after a commit, until you start it again. The run of its DAG in Airflow ends too."
    example = "sluice stop counts"
    steps = (Step.PREFLIGHT,)
    fields = (TIER,)

    def plan(self, spec: ChangeSpec, cluster: Cluster, notes: Iterable[str]) -> Plan:
        tier = tier_of(spec, cluster)
        name = tier.spec.name
        now = tier.placement
        if now is None:
            return Plan(notes=(f"{name} does not run: nothing is stopped",))
        standby = "" if tier.spec.standby is Standby.NONE else ", and its standby"
        if tier.failed:
            return with_predicted_time(
                STOP,
                cluster,
                Plan(notes=(f"{name} was given up: it is not started again, and its room becomes free",)),
            )
        ends = (
            f"{name} ends after its last commit: its driver on {now.driver}"
            + (f", its workers on {listed(now.slots)}" if now.slots else "")
            + standby
        )
        gap = f"then {name} writes nothing until it is started again; its input waits in the streams"
        return with_predicted_time(STOP, cluster, Plan(notes=(ends, gap)))


KIND = Stop()
