"""The placement of an incarnation on hosts that a change names: checked, and not chosen.

`plan` and the handover call this module.
"""

from collections.abc import Iterable

from sluice_ops.model.ids import HostName
from sluice_ops.model.incarnation import Placement
from sluice_ops.model.tier import TierSpec
from sluice_ops.model.wording import workers
from sluice_ops.planning.placement.cluster import Hosts, RefusedError, holding, without_room
from sluice_ops.planning.placement.drift import breaches, displaced, lost_pins
from sluice_ops.planning.placement.requests import DRIVER
from sluice_ops.planning.placement.shares import Target, available_extra
from sluice_ops.planning.placement.solver import Placed


def place_exactly(spec: TierSpec, aim: Target, now: Placement, placement: Placement, hosts: Hosts) -> Placed:
    """Place one incarnation exactly there, beside all units that the hosts hold.

    `now` is the placement of the running one. Raise RefusedError if a host takes nothing new, has
    no room, or may not have the tier's units by the rules of the site file, or if a pinned worker
    would leave its host.
    """
    name = spec.name
    for host in sorted(placement.hosts):
        if host not in hosts or not hosts[host].usable:
            state = hosts[host].state if host in hosts else "unknown"
            message = (
                f'tier "{name}": the next incarnation cannot start on {host}, which is {state}; return '
                f"{host} with `sluice return {host}`, or move the whole tier with "
                f"`sluice migrate {name} PLACE`"
            )
            raise RefusedError(message)
    wrong = next(iter((*_miscounted(placement, aim, hosts), *displaced(placement, aim, hosts))), None)
    if wrong is not None:
        message = (
            f"{name} {wrong}, so its workers cannot move one by one; repair that first with "
            "`sluice drift --repair`"
        )
        raise RefusedError(message)
    broken = next(iter(breaches(name, placement, aim, hosts)), None)
    if broken is not None:
        message = f"after the move, {name} {broken}; choose another host, or change the site file"
        raise RefusedError(message)
    lost = next(iter(lost_pins(name, now, placement, aim, hosts)), None)
    if lost is not None:
        message = (
            f"after the move, {name} {lost}; move another worker, or lower pinned.{name} in the site file"
        )
        raise RefusedError(message)
    _refuse_without_room(spec, placement, hosts)
    where: dict[tuple[str, str], tuple[HostName, ...]] = {
        (name, "slots"): placement.slots,
        (name, DRIVER): (placement.driver,),
    }
    return Placed(where, holding(hosts, spec, placement), ())


def place_of_worker(now: HostName, aim: Target, hosts: Hosts) -> str | None:
    """Return the place of a worker that is on the host `now`: that of its tier, or of its burst.

    A tier may be anywhere while no host at its place is up.
    """
    at_home = now not in hosts or hosts[now].matches(aim.to)
    if aim.extra and not at_home and hosts[now].matches(aim.extra_to):
        return aim.extra_to
    return aim.to if any(host.usable and host.matches(aim.to) for host in hosts.values()) else None


def _miscounted(placement: Placement, aim: Target, hosts: Hosts) -> Iterable[str]:
    """Return how the number of workers, or of those of a burst, is wrong."""
    extra = available_extra(aim, hosts)
    if len(placement.slots) != aim.own + extra:
        yield f"has {workers(len(placement.slots))}, but should have {aim.own + extra}"
    at_burst = sum(hosts[slot].matches(aim.extra_to) for slot in placement.slots) if extra else 0
    if at_burst < extra:
        yield f"has {at_burst} of the {extra} workers of its burst at {aim.extra_to}"


def _refuse_without_room(spec: TierSpec, placement: Placement, hosts: Hosts) -> None:
    for name, (cpu, memory) in without_room(spec, placement, hosts).items():
        message = (
            f'tier "{spec.name}": {name} has no room for the next incarnation beside the running units: '
            f"it needs {cpu:g} cpu and {memory} MiB, and {hosts[name].free_cpu:g} cpu and "
            f"{hosts[name].free_memory} MiB are free; free room on {name}, or move the whole tier with "
            f"`sluice migrate {spec.name} PLACE`"
        )
        raise RefusedError(message)
