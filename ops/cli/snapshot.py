"""One look at the channel for a command."""

import os
from pathlib import Path

from ops.channel import Channel
from ops.cli.connect import open_channel
from ops.controller.view import View, look
from ops.model import paths
from ops.planning.cluster import Rules
from ops.site import Site, load


def snapshot() -> View:
    """Connect, look at everything once, disconnect."""
    with open_channel() as channel:
        return look(channel)


def snapshot_with_rules() -> tuple[View, Rules]:
    """Likewise, with the rules that hold: the site that the controller has published, and the layers above it."""
    with open_channel() as channel:
        view, site = look(channel), published_site(channel)
    return view, Rules(
        shares=site.shares,
        locality=site.locality,
        layers=view.layers,
        shifts={name: shift.shares for name, shift in site.shifts.items()},
        partitions=site.partitions,
        batch_quantum=site.batch_quantum,
    )


def published_site(channel: Channel) -> Site:
    """Return the site as the controller has published it, or as this machine's file says."""
    found = channel.read(paths.SITE, Site)
    if found is not None:
        return found.value
    return load(Path(os.environ["SLUICE_SITE"]))
