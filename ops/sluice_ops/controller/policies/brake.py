"""The brake: if many hosts are lost at once, nothing is moved away from them.

It holds until they are back or written off. Many hosts rarely die together. The likely cause is the
network or the power supply, and the hosts may still run. Moving half of a pipeline to the other
half would do damage (decision 20).
"""

from collections.abc import Collection
from dataclasses import dataclass

from sluice_ops.controller.pass_state import Draft
from sluice_ops.model.assignment import HostRecord
from sluice_ops.model.ids import HostName
from sluice_ops.model.wording import listed

MOST_HOSTS = 10
MOST_PART = 0.4
"""More lost hosts than either number engage the brake. A single lost host never does."""


@dataclass(frozen=True)
class BrakeRuling:
    """The lost hosts from which nothing is moved in this pass."""

    braked: frozenset[HostName]
    returned: dict[HostName, HostRecord]
    """Hosts that were written off and are back → their record without the write-off."""
    events: tuple[str, ...]

    def apply(self, draft: Draft) -> None:
        """Brake these hosts."""
        draft.records |= self.returned
        draft.braked = self.braked
        draft.log(*self.events)


def hosts_to_brake(draft: Draft) -> BrakeRuling:
    """Decide which lost hosts are braked: nothing is moved away from them."""
    returned = {
        name: host.record.model_copy(update={"written_off": False})
        for name, host in draft.view.hosts.items()
        if host.live and host.record.written_off
    }
    braked, before = _braked(draft), _braked_before(draft)
    events: tuple[str, ...] = ()
    if braked and not before:
        events = (sentence(braked),)
    elif before and not braked:
        lost = sorted(name for name in before & draft.lost if not draft.view.hosts[name].record.written_off)
        why = (
            f"few hosts are lost now, and the units on {listed(lost)} are started elsewhere"
            if lost
            else f"{listed(sorted(before))} are back, or were written off"
        )
        events = (f"the brake is off: {why}",)
    return BrakeRuling(braked, returned, events)


def sentence(braked: Collection[HostName]) -> str:
    """Say which hosts are braked, and what a person can do."""
    agents = "its agent is" if len(braked) == 1 else "their agents are"
    return (
        f"BRAKE: many hosts were lost at once; nothing is moved away from {listed(sorted(braked))} until "
        f"{agents} back; if a host will not come back: sluice write-off {min(braked)}"
    )


def undecided(draft: Draft) -> list[HostName]:
    """Name the silent hosts that do not count as lost yet.

    A new leader starts to count their time.
    """
    silent = (name for name, host in draft.view.hosts.items() if not host.live and name not in draft.lost)
    return sorted(name for name in silent if not draft.records[name].written_off)


def _braked(draft: Draft) -> frozenset[HostName]:
    """Return the lost hosts that hold units, if too many hosts are lost or silent.

    A braked host stays braked while other braked hosts come back, and while it is not known to be
    lost.
    """
    gone = [
        name
        for name, host in draft.view.hosts.items()
        if (name in draft.lost or not host.live) and not host.record.written_off
    ]
    if not gone:
        return frozenset()
    used = _hosts_with_units(draft)
    gone = [name for name in gone if name in used]
    alive = sum(host.live for host in draft.view.hosts.values())
    before = _braked_before(draft)
    if len(gone) > 1 and (len(gone) > MOST_HOSTS or len(gone) > MOST_PART * (len(gone) + alive)):
        return (draft.lost | before).intersection(gone)
    return before.intersection(gone if draft.inputs.braked_return else undecided(draft))


def _braked_before(draft: Draft) -> frozenset[HostName]:
    """Return the hosts that were braked after the last pass."""
    return frozenset() if draft.view.status is None else frozenset(draft.view.status.braked)


def _hosts_with_units(draft: Draft) -> set[HostName]:
    used = {
        host for tier in draft.view.tiers for spec in draft.unretired(tier) for host in spec.placement.hosts
    }
    return used | {
        name
        for name, host in draft.view.hosts.items()
        if host.assignment.batch or draft.view.units_of_unread_tiers(name)
    }
