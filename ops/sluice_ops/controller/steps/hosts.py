"""The steps for hosts: cordon, reboot, health, return and write-off."""

from sluice_ops.controller.outcome import Done, Failed, Outcome, Waiting
from sluice_ops.controller.pass_state import Draft
from sluice_ops.controller.policies import brake
from sluice_ops.model.assignment import HostRecord, HostState
from sluice_ops.model.change import ChangeState, Operation, Step
from sluice_ops.model.ids import HostName
from sluice_ops.model.wording import listed
from sluice_ops.planning.changes.kinds import KINDS
from sluice_ops.snapshot.view import HostView


def _host(draft: Draft, operation: Operation) -> HostView | Failed:
    name = operation.spec.host
    host = None if name is None else draft.host(name)
    return host or Failed(f'there is no host "{name}"; known hosts: {", ".join(draft.view.hosts)}')


def cordon(draft: Draft, operation: Operation) -> Outcome:
    """Cordon the host: nothing new is placed on it."""
    host = _host(draft, operation)
    if isinstance(host, Failed):
        return host
    record = draft.records[host.name]
    if KINDS[operation.spec.kind].steps[-1] is Step.CORDON:
        draft.end_change(operation.change, ChangeState.DONE)
        if record.quarantine(host.name) is not None and record.state is HostState.CORDONED:
            cordoned = HostRecord(state=HostState.CORDONED, by=operation.change, since=draft.now)
            draft.write_records({host.name: cordoned})
            return Done(f"{host.name} was in quarantine, and stays cordoned until a person returns it")
    if record.state is not HostState.UP:
        return Done(f"{host.name} is {draft.records[host.name].state} already: nothing new is placed on it")
    draft.set_host_state(host.name, HostState.CORDONED, operation.change)
    return Done(f"{host.name} is cordoned: nothing new is placed on it")


def reboot(draft: Draft, operation: Operation) -> Outcome:
    """Have the agent of the drained host reboot it, and wait until the agent is back."""
    host = _host(draft, operation)
    if isinstance(host, Failed):
        return host
    name = host.name
    if draft.records[name].state not in {HostState.DRAINED, HostState.REBOOTING}:
        return Failed(
            f"{name} is {draft.records[name].state}; only a drained host is rebooted: sluice drain {name}"
        )
    if host.live and host.observed is not None and host.observed.rebooted == operation.id:
        draft.set_host_state(name, HostState.DRAINED, draft.records[name].by)
        # otherwise an agent with an empty disk would find the command months later and reboot
        draft.assignments[name] = draft.assignments[name].model_copy(update={"reboot": None})
        return Done(f"{name} has rebooted and its agent is back")
    draft.set_host_state(name, HostState.REBOOTING, draft.records[name].by)
    draft.assignments[name] = draft.assignments[name].model_copy(update={"reboot": operation.id})
    return Waiting(
        f"the agent of {name} is asked to reboot the host; if the host does not reboot, read the agent's "
        f"log: `journalctl -u sluice-agent@{name}`"
        if host.live
        else f"{name} reboots: its agent is silent"
    )


def health(draft: Draft, operation: Operation) -> Outcome:
    """Wait until the host's agent answers for the newest assignment; return the host's capacity."""
    host = _host(draft, operation)
    if isinstance(host, Failed):
        return host
    missing = _missing(host)
    if missing is not None:
        return Waiting(missing)
    facts = host.facts
    capacity = "" if facts is None else f": {facts.cpu:g} cpu, {facts.memory} MiB"
    return Done(f"{host.name} answers{capacity}")


def _missing(host: HostView) -> str | None:
    if not host.live:
        return f"waiting for the agent of {host.name}: it has no session"
    if host.facts is None:
        return f"waiting for the agent of {host.name} to register the host's capacity"
    if host.observed is None or host.observed.epoch < host.assignment.epoch:
        heard = "nothing" if host.observed is None else host.observed.epoch
        return (
            f"waiting for the agent of {host.name} to report on assignment {host.assignment.epoch}; "
            f"its last report is on {heard}"
        )
    return None


def return_host(draft: Draft, operation: Operation) -> Outcome:
    """Let the host be used again, and end the change."""
    host = _host(draft, operation)
    if isinstance(host, Failed):
        return host
    draft.set_host_state(HostName(host.name), HostState.UP, operation.change)
    draft.end_change(operation.change, ChangeState.DONE)
    return Done(f"{host.name} is up: it may be used again")


def write_off(draft: Draft, operation: Operation) -> Outcome:
    """Write off a lost host, or all braked hosts; the next pass starts their units elsewhere."""
    names = sorted(draft.braked) if operation.spec.host is None else [operation.spec.host]
    if not names and (away := brake.undecided(draft)):
        return Waiting(
            f"waiting until it is known whether the brake holds {listed(away)}: "
            f"{'its agent is' if len(away) == 1 else 'their agents are'} silent"
        )
    living = [name for name in names if (host := draft.host(name)) is not None and host.live]
    if living or not names:
        draft.end_change(operation.change, ChangeState.DONE)
        return Done(
            f"{listed(living)} came back, and {'is' if len(living) == 1 else 'are'} not written off"
            if living
            else "the brake holds no host: there is nothing to write off"
        )
    # a host that was taken off the channel in between counts as lost anyway
    for name in draft.records.keys() & names:
        draft.records[name] = draft.records[name].model_copy(update={"written_off": True})
    draft.end_change(operation.change, ChangeState.DONE)
    left = sorted(
        {
            unit.tenant
            for name in draft.view.hosts.keys() & names
            for unit in draft.view.units_of_unread_tiers(name)
        }
    )
    but = f", except units of {listed(left)}: they stay until the tier can be read" if left else ""
    return Done(
        f"{listed(names)} {'is' if len(names) == 1 else 'are'} written off: "
        f"the units are started elsewhere{but}"
    )
