"""The messages for requests that find no room, with the numbers and the next step.

`solver` uses them.
"""

from sluice_ops.model.assignment import HostState
from sluice_ops.model.ids import BATCH
from sluice_ops.model.wording import listed
from sluice_ops.planning.placement.cluster import Host, Hosts
from sluice_ops.planning.placement.requests import DRIVER, EXTRA, Request


def name_of(request: Request) -> str:
    """Return the name of a request for a message."""
    if request.tenant == BATCH:
        return "batch"
    return f'tier "{request.tenant}"' if request.part != DRIVER else f'the driver of tier "{request.tenant}"'


def known(hosts: Hosts) -> str:
    """List all known hosts, zones, racks and labels."""
    zones = sorted({host.zone for host in hosts.values()})
    racks = sorted({host.rack for host in hosts.values() if host.rack})
    labels = sorted({label for host in hosts.values() for label in host.labels})
    named = f"; racks: {', '.join(racks)}" if racks else ""
    return (
        f"hosts: {listed(sorted(hosts))}; zones: {', '.join(zones)}{named}; "
        f"labels: {', '.join(labels) or 'none'}"
    )


def state_of(host: Host) -> str:
    """Return why a host takes no new units. A repair cordons hosts with starved tiers."""
    if host.state is HostState.CORDONED and host.starves:
        return f"has too little processor time for {listed(sorted(host.starves))}"
    return f"is {host.state}"


def why_no_room(request: Request, found: int, hosts: Hosts) -> str:
    """Return why a request finds no room, with the numbers and the next step.

    `found`: how many of its units found room.
    """
    where = "" if request.to is None else f" at {request.to}"
    usable = [host for _, host in sorted(hosts.items()) if host.matches(request.to) and host.usable]
    key = "driver" if request.part == DRIVER else "quantum"
    if not usable:
        states = listed(
            f"{host.name} {state_of(host)}" for _, host in sorted(hosts.items()) if host.matches(request.to)
        )
        return (
            f"{name_of(request)}: no host{where} takes new units ({states or 'there is none'}); "
            "return or add a host"
        )
    barred = {host.name: why for host in usable if (why := _barred(request, host)) is not None}
    if len(barred) == len(usable):
        reasons = listed(f"{name} {why}" for name, why in barred.items())
        return (
            f"{name_of(request)}: no host{where} may take it: {reasons}; "
            "return or add a host, or change the site file"
        )
    largest = max(usable, key=lambda host: (host.capacity.cpu, host.capacity.memory))
    if all(host.capacity.cpu < request.quantum.cpu for host in usable):
        return (
            f"{name_of(request)} needs {request.quantum.cpu:g} cpu for one quantum, but the largest "
            f"host{where}, {largest.name}, has {largest.capacity.cpu:g}; "
            f"give {largest.name} more or lower {key}.cpu"
        )
    if all(host.capacity.memory < request.quantum.memory for host in usable):
        return (
            f"{name_of(request)} needs {request.quantum.memory} MiB for one quantum, but the largest "
            f"host{where}, {largest.name}, has {largest.capacity.memory}; "
            f"give {largest.name} more or lower {key}.memory"
        )
    free = listed(
        f"{host.name} {barred[host.name]}"
        if host.name in barred
        else f"{host.name} {host.free_cpu:g} cpu and {host.free_memory} MiB"
        for host in usable
    )
    limits = [
        f"{most} {'on' if kind == 'host' else 'in'} a {kind}"
        for kind, most in request.spread or ()
        if most is not None
    ]
    spread = f", with at most {', '.join(limits)} (spread.{request.tenant})" if limits else ""
    may_be_migrated = request.to is not None and request.tenant != BATCH and request.part != EXTRA
    anywhere = (
        f", or run `sluice migrate {request.tenant} anywhere` if a migrate has set {request.to}"
        if may_be_migrated
        else ""
    )
    return (
        f"{name_of(request)}: {request.count - found} of {request.count} units ({request.quantum.cpu:g} cpu, "
        f"{request.quantum.memory} MiB each) find no room{where}{spread}; free: {free}; "
        f"return or add a host, or lower a share{anywhere}"
    )


def burst_missing(tenant: str, count: int, to: str, hosts: Hosts, missing: int | None = None) -> str:
    """Return that workers of a burst cannot be placed, and the next steps.

    `count` are the workers of the burst. `missing` of them cannot be placed; None: all.
    """
    states = (
        listed(f"{host.name} is {host.state}" for _, host in sorted(hosts.items()) if host.matches(to))
        or "there is none"
    )
    return (
        f"{count if missing is None else missing} more worker(s) of {tenant} cannot be placed at {to}: "
        f"no host there is up ({states}); start or return one, or end the burst with `sluice leave "
        f"--tier {tenant}` and launch a new one with `sluice burst {tenant} {count}`"
    )


def _barred(request: Request, host: Host) -> str | None:
    """Return why a host may not take a request; None if it may."""
    if host.only is not None and request.tenant not in host.only:
        return f"is dedicated to {', '.join(sorted(host.only))}"
    shared = request.separate.intersection(host.tiers)
    if shared:
        return f"holds {', '.join(sorted(shared))}, from which it has to be separate"
    return None if request.left_on(host) else "has as many workers of the tier as it may have"
