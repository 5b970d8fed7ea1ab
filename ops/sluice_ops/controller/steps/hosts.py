"""The steps for hosts: cordon, reboot, health, return and write-off."""

from collections.abc import Callable

from sluice_ops.controller.outcome import Done, Failed, Outcome, Waiting
from sluice_ops.controller.pass_state import Draft
from sluice_ops.controller.policies import brake
from sluice_ops.model.assignment import HostRecord, HostState
from sluice_ops.model.change import ChangeState, Operation, Step
from sluice_ops.model.wording import listed
from sluice_ops.planning.changes.kinds import KINDS
from sluice_ops.snapshot.view import HostView


def _hosts(draft: Draft, operation: Operation) -> list[HostView] | Failed:
    """Return the hosts that the change names."""
    hosts = {name: draft.host(name) for name in operation.spec.named_hosts}
    missing = [name for name, host in hosts.items() if host is None]
    if missing or not hosts:
        return Failed(f'there is no host "{listed(missing)}"; known hosts: {listed(draft.view.hosts)}')
    return [host for host in hosts.values() if host is not None]


def _for_each(draft: Draft, operation: Operation, step: Callable[[HostView], Outcome]) -> Outcome:
    """Carry out a step for each host that the change names: failed, waiting, or done by all."""
    hosts = _hosts(draft, operation)
    if isinstance(hosts, Failed):
        return hosts
    every = [step(host) for host in hosts]
    worst: type[Outcome] = next(
        (kind for kind in (Failed, Waiting) if any(isinstance(each, kind) for each in every)), Done
    )
    return worst("; ".join(each.sentence for each in every if isinstance(each, worst)))


def cordon(draft: Draft, operation: Operation) -> Outcome:
    """Cordon the hosts: nothing new is placed on them."""
    return _for_each(draft, operation, lambda host: _cordon(draft, operation, host))


def _cordon(draft: Draft, operation: Operation, host: HostView) -> Outcome:
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
    """Have the agents of the drained hosts reboot them, and wait until the agents are back."""
    return _for_each(draft, operation, lambda host: _reboot(draft, operation, host))


def _reboot(draft: Draft, operation: Operation, host: HostView) -> Outcome:
    name, record = host.name, draft.records[host.name]
    if record.state not in {HostState.DRAINED, HostState.REBOOTING}:
        return Failed(f"{name} is {record.state}; only a drained host is rebooted: sluice drain {name}")
    if host.live and host.observed is not None and host.observed.rebooted == operation.id:
        draft.set_host_state(name, HostState.DRAINED, record.by)
        # otherwise an agent with an empty disk would find the command months later and reboot
        draft.assignments[name] = draft.assignments[name].model_copy(update={"reboot": None})
        return Done(f"{name} has rebooted and its agent is back")
    draft.set_host_state(name, HostState.REBOOTING, record.by)
    draft.assignments[name] = draft.assignments[name].model_copy(update={"reboot": operation.id})
    return Waiting(
        f"the agent of {name} is asked to reboot the host; if the host does not reboot, read the agent's "
        f"log: `journalctl -u sluice-agent@{name}`"
        if host.live
        else f"{name} reboots: its agent is silent"
    )


def health(draft: Draft, operation: Operation) -> Outcome:
    """Wait until the agents answer for their newest assignments; return the hosts' capacity."""
    is_checked = KINDS[operation.spec.kind].proves_host
    return _for_each(draft, operation, lambda host: _health(host, is_checked=is_checked))


def _health(host: HostView, *, is_checked: bool) -> Outcome:
    missing = _missing(host) or (_unsound(host) if is_checked else None)
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


def _unsound(host: HostView) -> str | None:
    """Return what the check of a new or rebooted host waits for. An older agent makes none."""
    observed = host.observed
    if observed is None or observed.boot is None:
        return None
    if observed.findings is None:
        return f"waiting for the agent of {host.name} to check the host"
    if observed.findings:
        return (
            f"{host.name} is not sound: {listed(observed.findings)}; there, run "
            f"`sluice doctor --host {host.name}`"
        )
    return None


def return_host(draft: Draft, operation: Operation) -> Outcome:
    """Let the hosts be used again, and end the change."""
    outcome = _for_each(draft, operation, lambda host: _return(draft, operation, host))
    if isinstance(outcome, Done):
        draft.end_change(operation.change, ChangeState.DONE)
    return outcome


def _return(draft: Draft, operation: Operation, host: HostView) -> Outcome:
    draft.set_host_state(host.name, HostState.UP, operation.change)
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
