"""Inject a fault into a running tier, and judge what happens by its promise."""

from collections.abc import Iterable

from sluice_ops.model.change import ChangeSpec, Plan, Step
from sluice_ops.model.tier import Standby
from sluice_ops.model.wording import listed
from sluice_ops.planning.changes.faults import FAULTS, Fault, Victim
from sluice_ops.planning.changes.kind import TIER, Field, Input, Kind
from sluice_ops.planning.changes.lookups import tier_of
from sluice_ops.planning.placement.cluster import Cluster, RefusedError


class GameDay(Kind):
    name = "game-day"
    summary = "Inject a fault into a tier, and judge what follows."
    details = (
        "The agent of the tier's host kills or stops a process. Then the controller compares what the "
        "drivers and the agent measured with the promise. The run fails if a promise is broken. It is "
        "refused while the platform is not well."
    )
    example = "sluice game-day kill-driver enrich"
    steps = (Step.PREFLIGHT, Step.INJECT, Step.JUDGE)
    fields = (Field("fault", Input.FAULT, f"The fault: {listed(FAULTS)}."), TIER)
    runbook = "game_day"

    def refuse(self, spec: ChangeSpec, cluster: Cluster) -> Iterable[str]:
        fault = fault_of(spec)
        tier = tier_of(spec, cluster)
        name = tier.spec.name
        if tier.placement is None or tier.paused or tier.failed:
            state = "was given up" if tier.failed else "is paused" if tier.paused else "does not run"
            message = f"tier {name} {state}, so a fault would show nothing: `sluice status`"
            raise RefusedError(message)
        if fault.victim is Victim.WORKER and not tier.placement.slots:
            message = (
                f"tier {name} is light: its driver does the work, so it has no worker for {fault.name}; use "
                "kill-driver, freeze-driver or kill-agent, or another tier"
            )
            raise RefusedError(message)
        if fault.victim is Victim.DRIVER and tier.spec.standby is Standby.HOT:
            message = (
                f"tier {name} has a hot standby, which writes beside the owner: nobody measures a gap, so "
                f"{fault.name} cannot be judged; use kill-worker or kill-agent, or another tier"
            )
            raise RefusedError(message)
        return []

    def effect(self, spec: ChangeSpec) -> str:
        fault = fault_of(spec)
        return fault.does.format(tier=spec.tier)

    def plan(self, spec: ChangeSpec, cluster: Cluster, notes: Iterable[str]) -> Plan:
        fault = fault_of(spec)
        limit = fault.limit(tier_of(spec, cluster).spec)
        promise = f"promised: {fault.promise} within {limit:g} s"
        return Plan(
            notes=(self.effect(spec), promise, *notes),
            predicted_gap_seconds=limit if fault.victim is Victim.DRIVER else 0.0,
            unpredicted="how long it takes until the outcome is measured",
        )


KIND = GameDay()


def fault_of(spec: ChangeSpec) -> Fault:
    """Return the fault of a game day. Raise RefusedError if it is missing or unknown."""
    fault = FAULTS.get(spec.fault or "")
    if fault is None:
        message = f'there is no fault "{spec.fault or ""}" for a game day; faults: {listed(FAULTS)}'
        raise RefusedError(message)
    return fault
