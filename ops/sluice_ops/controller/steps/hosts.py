"""The steps that concern hosts: cordon, reboot, health, return and write-off."""

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
    seen = None if name is None else draft.host(name)
    return seen or Failed(f'there is no host "{name}"; known hosts: {", ".join(draft.view.hosts)}')


def cordon(draft: Draft, operation: Operation) -> Outcome:
    """Have nothing new placed on the host."""
    seen = _host(draft, operation)
    if isinstance(seen, Failed):
        return seen
    record = draft.records[seen.name]
    if KINDS[operation.spec.kind].steps[-1] is Step.CORDON:
        draft.end_change(operation.change, ChangeState.DONE)
        if record.quarantine(seen.name) is not None and record.state is HostState.CORDONED:
            cordoned = HostRecord(state=HostState.CORDONED, by=operation.change, since=draft.now)
            draft.write_records({seen.name: cordoned})
            return Done(f"{seen.name} was in quarantine, and stays cordoned until a person returns it")
    if record.state is not HostState.UP:
        return Done(f"{seen.name} is {draft.records[seen.name].state} already: nothing new goes there")
    draft.set_host_state(seen.name, HostState.CORDONED, operation.change)
    return Done(f"{seen.name} is cordoned: nothing new goes there")


def reboot(draft: Draft, operation: Operation) -> Outcome:
    """Have the drained host reboot, and wait for its agent to come back from it."""
    seen = _host(draft, operation)
    if isinstance(seen, Failed):
        return seen
    name = seen.name
    if draft.records[name].state not in {HostState.DRAINED, HostState.REBOOTING}:
        return Failed(f"{name} is {draft.records[name].state}: it is rebooted only when it has been drained")
    if seen.live and seen.observed is not None and seen.observed.rebooted == operation.id:
        draft.set_host_state(name, HostState.DRAINED, draft.records[name].by)
        # an agent that begins with an empty disk must not find it, months later
        draft.assignments[name] = draft.assignments[name].model_copy(update={"reboot": None})
        return Done(f"{name} has rebooted and its agent is back")
    draft.set_host_state(name, HostState.REBOOTING, draft.records[name].by)
    draft.assignments[name] = draft.assignments[name].model_copy(update={"reboot": operation.id})
    return Waiting(
        f"{name} is asked to reboot; if it does not, its agent's log tells why"
        if seen.live
        else f"{name} is away: it reboots"
    )


def health(draft: Draft, operation: Operation) -> Outcome:
    """Check that the host's agent answers for the newest assignment, and what it has to give."""
    seen = _host(draft, operation)
    if isinstance(seen, Failed):
        return seen
    missing = _missing(seen)
    if missing is not None:
        return Waiting(missing)
    facts = seen.facts
    given = "" if facts is None else f": {facts.cpu:g} cpu, {facts.memory} MiB"
    return Done(f"{seen.name} answers{given}")


def _missing(seen: HostView) -> str | None:
    if not seen.live:
        return f"waiting for the agent of {seen.name}: it has no session"
    if seen.facts is None:
        return f"waiting for the agent of {seen.name} to register what it has"
    if seen.observed is None or seen.observed.epoch < seen.assignment.epoch:
        heard = "nothing" if seen.observed is None else seen.observed.epoch
        return f"waiting for the agent of {seen.name} to answer for assignment {seen.assignment.epoch}; heard of {heard}"
    return None


def give_back(draft: Draft, operation: Operation) -> Outcome:
    """Let the host be used again, and end the change."""
    seen = _host(draft, operation)
    if isinstance(seen, Failed):
        return seen
    draft.set_host_state(HostName(seen.name), HostState.UP, operation.change)
    draft.end_change(operation.change, ChangeState.DONE)
    return Done(f"{seen.name} is up: it may be used again")


def write_off(draft: Draft, operation: Operation) -> Outcome:
    """Hold a lost host to be gone, or all that the brake holds; the next pass has what was on them go on elsewhere."""
    names = sorted(draft.braked) if operation.spec.host is None else [operation.spec.host]
    if not names and (away := brake.undecided(draft)):
        return Waiting(
            f"waiting until it is known whether the brake holds {listed(away)}, whose {'agent is' if len(away) == 1 else 'agents are'} away"
        )
    living = [name for name in names if (seen := draft.host(name)) is not None and seen.live]
    if living or not names:
        draft.end_change(operation.change, ChangeState.DONE)
        return Done(
            f"{listed(living)} came back meanwhile"
            if living
            else "the brake holds no host: there is nothing to write off"
        )
    for name in (
        draft.records.keys() & names
    ):  # what was taken off the channel meanwhile is as good as lost anyway
        draft.records[name] = draft.records[name].model_copy(update={"written_off": True})
    draft.end_change(operation.change, ChangeState.DONE)
    left = sorted(
        {unit.tenant for name in draft.view.hosts.keys() & names for unit in draft.view.left_on(name)}
    )
    but = f", but for what is of {listed(left)}: that stays until it can be read" if left else ""
    return Done(
        f"{listed(names)} {'is' if len(names) == 1 else 'are'} written off: what was there goes on elsewhere{but}"
    )
