"""The brake: when many hosts are lost at once, what is on them stays theirs until they are back, or a person writes them off.

So many do not die together: a network or a power supply is to blame, and what seems lost often runs on. Moving half a pipeline onto the
other half would then do the damage.
"""

from sluice_ops.controller.pass_state import Draft
from sluice_ops.model.ids import HostName
from sluice_ops.model.wording import listed

MOST_HOSTS = 10
MOST_PART = 0.4
"""More lost hosts than either engage the brake; one alone never does."""


def engage(draft: Draft) -> None:
    """Begin the pass with what may not be moved, and say so when that changes."""
    _forget_returned(draft)
    draft.braked = _braked(draft)
    before = _before(draft)
    if draft.braked and not before:
        draft.tell(sentence(draft))
    elif before and not draft.braked:
        left = sorted(name for name in before & draft.lost if not draft.records[name].written_off)
        back = f"{listed(sorted(before))} came back, or were written off"
        draft.tell(
            f"the brake is off: {f'few are lost now, and what is on {listed(left)} goes on elsewhere' if left else back}"
        )


def sentence(draft: Draft) -> str:
    """Say what is held, and what a person can do about it."""
    their, they = ("its agent is", "it") if len(draft.braked) == 1 else ("their agents are", "they")
    return (
        f"BRAKE: many hosts were lost at once; what is on {listed(sorted(draft.braked))} is moved nowhere until {their} back, or "
        f"`sluice write-off` says that {they} will not be"
    )


def unknown(draft: Draft) -> list[HostName]:
    """Name the hosts that are away and not lost yet: a controller that has just taken office counts anew, and holds nothing until then."""
    away = (name for name, host in draft.view.hosts.items() if not host.live and name not in draft.lost)
    return sorted(name for name in away if not draft.records[name].written_off)


def _forget_returned(draft: Draft) -> None:
    for name, host in draft.view.hosts.items():
        if host.live and host.record.written_off:
            draft.records[name] = host.record.model_copy(update={"written_off": False})


def _braked(draft: Draft) -> frozenset[HostName]:
    """Return the lost hosts that hold something, when they and those that are just going are too many.

    Those that were held stay so while they come back one after the other, and while it is not known whether they are lost.
    """
    gone = [
        name
        for name, host in draft.view.hosts.items()
        if (name in draft.lost or not host.live) and not host.record.written_off
    ]
    if not gone:
        return frozenset()
    holding = _holding(draft)
    gone = [name for name in gone if name in holding]
    alive = sum(host.live for host in draft.view.hosts.values())
    if len(gone) > 1 and (len(gone) > MOST_HOSTS or len(gone) > MOST_PART * (len(gone) + alive)):
        return (draft.lost | _before(draft)).intersection(gone)
    return _before(draft).intersection(gone if draft.coming else unknown(draft))


def _before(draft: Draft) -> frozenset[HostName]:
    """Return those that were held after the last pass."""
    return frozenset() if draft.view.status is None else frozenset(draft.view.status.braked)


def _holding(draft: Draft) -> set[HostName]:
    held = {host for tier in draft.view.tiers for spec in draft.held(tier) for host in spec.placement.hosts}
    return held | {
        name for name, host in draft.view.hosts.items() if host.assignment.batch or draft.view.left_on(name)
    }
