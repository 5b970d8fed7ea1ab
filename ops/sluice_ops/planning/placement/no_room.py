"""Why an ask finds no place: with the numbers, and what to do about it. Called by `placement`."""

from sluice_ops.model.ids import BATCH
from sluice_ops.model.wording import listed
from sluice_ops.planning.placement.cluster import Host, Hosts
from sluice_ops.planning.placement.requests import DRIVER, EXTRA, Ask


def name_of(ask: Ask) -> str:
    """Name what asks."""
    if ask.tenant == BATCH:
        return "batch"
    return f'tier "{ask.tenant}"' if ask.part != DRIVER else f'the driver of tier "{ask.tenant}"'


def known(hosts: Hosts) -> str:
    """List the places that there are."""
    zones = sorted({host.zone for host in hosts.values()})
    racks = sorted({host.rack for host in hosts.values() if host.rack})
    labels = sorted({label for host in hosts.values() for label in host.labels})
    named = f"; racks: {', '.join(racks)}" if racks else ""
    return f"hosts: {listed(sorted(hosts))}; zones: {', '.join(zones)}{named}; labels: {', '.join(labels) or 'none'}"


def verdict(ask: Ask, found: int, hosts: Hosts) -> str:
    """Say why an ask does not fit, with the numbers and what to do about it."""
    where = "" if ask.to is None else f" at {ask.to}"
    usable = [host for _, host in sorted(hosts.items()) if host.matches(ask.to) and host.usable]
    key = "driver" if ask.part == DRIVER else "quantum"
    if not usable:
        states = listed(
            f"{host.name} is {host.state}" for _, host in sorted(hosts.items()) if host.matches(ask.to)
        )
        return f"{name_of(ask)}: no host{where} can take it ({states or 'there is none'}); return or add one"
    barred = {host.name: why for host in usable if (why := _barred(ask, host)) is not None}
    if len(barred) == len(usable):
        whys = listed(f"{name} {why}" for name, why in barred.items())
        return (
            f"{name_of(ask)}: no host{where} may take it: {whys}; return or add one, or change the site file"
        )
    largest = max(usable, key=lambda host: (host.capacity.cpu, host.capacity.memory))
    if all(host.capacity.cpu < ask.quantum.cpu for host in usable):
        return (
            f"{name_of(ask)}: Q asks {ask.quantum.cpu:g} cpu, host {largest.name} has {largest.capacity.cpu:g}; "
            f"give {largest.name} more or lower {key}.cpu"
        )
    if all(host.capacity.memory < ask.quantum.memory for host in usable):
        return (
            f"{name_of(ask)}: Q asks {ask.quantum.memory} MiB, host {largest.name} has {largest.capacity.memory}; "
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
        for kind, most in ask.spread or ()
        if most is not None
    ]
    apart = (
        f", where at most {', '.join(limits)} of its workers may be (spread.{ask.tenant})" if limits else ""
    )
    may_be_migrated = ask.to is not None and ask.tenant != BATCH and ask.part != EXTRA
    anywhere = (
        f", or `sluice migrate {ask.tenant} anywhere` if a migrate has set {ask.to}"
        if may_be_migrated
        else ""
    )
    return (
        f"{name_of(ask)}: {ask.count - found} of {ask.count} ({ask.quantum.cpu:g} cpu, {ask.quantum.memory} MiB each) find no room{where}"
        f"{apart}; free are {free}; return or add a host, or lower a share{anywhere}"
    )


def burst_away(tenant: str, count: int, to: str, hosts: Hosts, missing: int | None = None) -> str:
    """Say that the workers of a burst, or those that are missing of it, cannot be had, and the ways to them."""
    states = (
        listed(f"{host.name} is {host.state}" for _, host in sorted(hosts.items()) if host.matches(to))
        or "there is none"
    )
    away = count if missing is None else missing
    return (
        f"{away} more worker(s) of {tenant} at {to} cannot be had: no host there is up ({states}); start or return one, or `sluice leave` "
        f"takes every burst back, and `sluice burst {tenant} {count}` launches anew"
    )


def _barred(ask: Ask, host: Host) -> str | None:
    """Say why a host may not take an ask at all."""
    if host.only is not None and ask.tenant not in host.only:
        return f"is dedicated to {', '.join(sorted(host.only))}"
    shared = ask.separate.intersection(host.tiers)
    if shared:
        return f"holds {', '.join(sorted(shared))}, from which it has to be separate"
    return None if ask.left_on(host) else "has as many of its workers as may be there"
