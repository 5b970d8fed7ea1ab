"""The facts of a host: address, place, labels and capacity.

They come from the site file, or from the command line for a host that the site file does not know,
such as a burst host.
"""

import socket
from argparse import Namespace
from pathlib import Path

from pydantic import ValidationError

from sluice_ops.model.assignment import HostFacts
from sluice_ops.model.ids import HostName
from sluice_ops.model.resources import Cores, Link
from sluice_ops.site.site_file import HostConfig, Site


class UnknownHostError(Exception):
    """The site file does not name the host, and the command line lacks facts; the message says
    which.
    """


class ForeignAddressError(Exception):
    """The host's address is no address of this machine, so slots cannot listen there."""


def check_address(facts: HostFacts) -> None:
    """Raise ForeignAddressError if slots cannot listen at the host's address."""
    try:
        family, kind, *_, address = socket.getaddrinfo(facts.address, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as listener:
            listener.bind(address)
    except OSError as error:
        message = (
            f"host {facts.name!r} has address {facts.address}, and slots cannot listen there on this machine "
            f"({error.strerror}): start the agent on the machine with this address, "
            "or correct the address in the site file"
        )
        raise ForeignAddressError(message) from error


def facts_of(name: str, site: Site, site_file: Path) -> HostFacts:
    """Return the facts of a host in the site file; UnknownHostError if it is not there."""
    for host in site.hosts:
        if host.name == name:
            return _facts(host)
    known = ", ".join(host.name for host in site.hosts)
    message = (
        f"host {name!r} is not in {site_file}, which knows {known}: "
        "add it there, or give --address, --cpu and --memory"
    )
    raise UnknownHostError(message)


def link_of(name: str, site: Site) -> Link | None:
    """Return the link that the site file gives the host to divide; None if it gives none."""
    return next((host.network for host in site.hosts if host.name == name), None)


def cores_of(name: str, site: Site) -> Cores:
    """Return `own` if units of the host have cores of their own, else `shared`."""
    return next((host.cores for host in site.hosts if host.name == name), "shared")


def facts_from(arguments: Namespace) -> HostFacts:
    """Return the facts on the command line; UnknownHostError if one is missing or invalid."""
    missing = [f"--{option}" for option in ("cpu", "memory") if getattr(arguments, option) is None]
    if missing:
        message = (
            f"--address was given, {' and '.join(missing)} missing: "
            "a host that is not in the site file needs all three"
        )
        raise UnknownHostError(message)
    capacity = {"cpu": arguments.cpu, "memory": arguments.memory}
    labels = [label for label in arguments.labels.split(",") if label]
    config = {
        "name": arguments.host,
        "address": arguments.address,
        "zone": arguments.zone,
        "labels": labels,
        "capacity": capacity,
    }
    try:
        return _facts(HostConfig.model_validate(config))
    except ValidationError as error:
        problems = [
            (problem["loc"][-1], problem["msg"].removeprefix("Value error, ")) for problem in error.errors()
        ]
        raise UnknownHostError(
            "; ".join(f"--{'host' if key == 'name' else key}: {text}" for key, text in problems)
        ) from error


def _facts(host: HostConfig) -> HostFacts:
    return HostFacts(
        name=HostName(host.name),
        address=host.address,
        zone=host.zone,
        rack=host.rack,
        labels=host.labels,
        cpu=host.capacity.cpu,
        memory=host.capacity.memory,
    )
