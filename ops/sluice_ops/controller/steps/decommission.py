"""The step decommission: remember an empty host as decommissioned, and wait until it is removed."""

from sluice_ops.controller.outcome import Done, Failed, Outcome, Waiting
from sluice_ops.controller.pass_state import Draft
from sluice_ops.controller.steps.release import left_on
from sluice_ops.model.assignment import Decommissioned
from sluice_ops.model.change import ChangeState, Operation
from sluice_ops.snapshot.view import HostView


def decommission(draft: Draft, operation: Operation) -> Outcome:
    """Write the host's name down, then wait until its agent has ended and its nodes are gone.

    From the first write on, the host's agent ends and cannot register again.
    """
    name = operation.spec.host
    if name is None:
        return Failed("a decommission needs a host; `sluice hosts` lists the hosts")
    host, gone = draft.host(name), draft.decommissioned.get(name)
    if host is not None and (left := left_on(draft, name)):
        return Waiting(f"waiting until {name} is empty: {left}")
    if gone is None:
        draft.decommissioned[name] = Decommissioned(
            change=operation.change,
            by=operation.by,
            at=draft.now,
            unchecked="" if host is None else _unchecked(host),
        )
        return Waiting(f"{name} is empty: from now on its agent ends, and is refused")
    if host is not None:
        return Waiting(
            f"waiting until the agent of {name} ends; if it does not, stop it there: "
            f"`systemctl disable --now sluice-agent@{name}`"
            if host.live
            else f"the registration of {name} is removed"
        )
    draft.end_change(operation.change, ChangeState.DONE)
    unchecked = f" Not checked: {gone.unchecked}." if gone.unchecked else ""
    return Done(
        f"{name} is decommissioned: no unit was left, and its registration, credential and labels are "
        f"removed; take {name} out of the site file, too.{unchecked}"
    )


def _unchecked(host: HostView) -> str:
    """Return what a silent agent could not report."""
    if host.live:
        return ""
    observed = host.observed
    if observed is None:
        return "what runs on the machine, because its agent never reported"
    units = ", ".join(unit.id for unit in observed.units) or "none"
    return f"what runs on the machine, because its agent is silent; the units of its last report: {units}"
