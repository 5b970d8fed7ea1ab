"""What a host is: from the site file by its name, or from the command line where that cannot know it, as with burst hosts."""

import os
from argparse import Namespace
from pathlib import Path

from pydantic import TypeAdapter

from ops.model.assignment import HostFacts
from ops.model.ids import HostName
from ops.model.resources import Mebibytes
from ops.site import Site

MEBIBYTES: TypeAdapter[int] = TypeAdapter(Mebibytes)


class UnknownHostError(Exception):
    """The host is not in the site file; the message names those that are."""


def site_path() -> Path:
    """Return where the site file is: SLUICE_SITE, or `site.yaml` here."""
    return Path(os.environ.get("SLUICE_SITE", "site.yaml")).resolve()


def facts_of(name: str, site: Site, site_file: Path) -> HostFacts:
    """Return the facts of a host of the site file."""
    for host in site.hosts:
        if host.name == name:
            return HostFacts(
                name=HostName(name),
                address=host.address,
                zone=host.zone,
                labels=host.labels,
                cpu=host.capacity.cpu,
                memory=host.capacity.memory,
            )
    known = ", ".join(host.name for host in site.hosts)
    message = f"host {name!r} is not in {site_file}, which knows {known}: add it there, or give --address, --cpu and --memory"
    raise UnknownHostError(message)


def facts_from(arguments: Namespace) -> HostFacts:
    """Return the facts given on the command line."""
    missing = [f"--{each}" for each in ("cpu", "memory") if getattr(arguments, each) is None]
    if missing:
        message = f"--address was given, {' and '.join(missing)} missing: a host that is not in the site file needs all three"
        raise UnknownHostError(message)
    return HostFacts(
        name=HostName(arguments.host),
        address=arguments.address,
        zone=arguments.zone,
        labels=tuple(label for label in arguments.labels.split(",") if label),
        cpu=arguments.cpu,
        memory=MEBIBYTES.validate_python(arguments.memory),
    )
