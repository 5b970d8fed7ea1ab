"""What a host is: from the site file by its name, or from the command line where that cannot know it, as with burst hosts."""

import os
import socket
from argparse import Namespace
from pathlib import Path

from pydantic import ValidationError

from sluice_ops.model.assignment import HostFacts
from sluice_ops.model.ids import HostName
from sluice_ops.model.resources import Cores, Link
from sluice_ops.site.site_file import HostConfig, Site


class UnknownHostError(Exception):
    """The host is not in the site file, nor described well on the command line; the message says what is missing."""


class ForeignAddressError(Exception):
    """The host's address is not one of this machine: its slots could not listen there."""


def check_address(facts: HostFacts) -> None:
    """Make sure that slots can listen at the host's address."""
    try:
        family, kind, *_, address = socket.getaddrinfo(facts.address, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as listener:
            listener.bind(address)
    except OSError as error:
        message = (
            f"host {facts.name!r} has address {facts.address}, where nothing can listen on this machine ({error.strerror}): "
            "start the agent on that machine, or correct the address in the site file"
        )
        raise ForeignAddressError(message) from error


def site_path() -> Path:
    """Return where the site file is: SLUICE_SITE, or `site.yaml` here."""
    return Path(os.environ.get("SLUICE_SITE", "site.yaml")).resolve()


def facts_of(name: str, site: Site, site_file: Path) -> HostFacts:
    """Return the facts of a host of the site file."""
    for host in site.hosts:
        if host.name == name:
            return _facts(host)
    known = ", ".join(host.name for host in site.hosts)
    message = f"host {name!r} is not in {site_file}, which knows {known}: add it there, or give --address, --cpu and --memory"
    raise UnknownHostError(message)


def link_of(name: str, site: Site) -> Link | None:
    """Return the link of a host of the site file that is to be divided; None where none is."""
    return next((host.network for host in site.hosts if host.name == name), None)


def cores_of(name: str, site: Site) -> Cores:
    """Tell whether units of a host have cores of their own."""
    return next((host.cores for host in site.hosts if host.name == name), "shared")


def facts_from(arguments: Namespace) -> HostFacts:
    """Return the facts given on the command line."""
    missing = [f"--{each}" for each in ("cpu", "memory") if getattr(arguments, each) is None]
    if missing:
        message = f"--address was given, {' and '.join(missing)} missing: a host that is not in the site file needs all three"
        raise UnknownHostError(message)
    capacity = {"cpu": arguments.cpu, "memory": arguments.memory}
    labels = [label for label in arguments.labels.split(",") if label]
    said = {
        "name": arguments.host,
        "address": arguments.address,
        "zone": arguments.zone,
        "labels": labels,
        "capacity": capacity,
    }
    try:
        return _facts(HostConfig.model_validate(said))
    except ValidationError as error:
        wrong = [(item["loc"][-1], item["msg"].removeprefix("Value error, ")) for item in error.errors()]
        raise UnknownHostError(
            "; ".join(f"--{'host' if key == 'name' else key}: {why}" for key, why in wrong)
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
