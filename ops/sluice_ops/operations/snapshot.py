"""One snapshot of the channel for a command, and the site file."""

from collections.abc import Mapping
from typing import NamedTuple

from sluice_ops.model.alert import AlertRecord
from sluice_ops.model.source import SourceFigures
from sluice_ops.operations.alerts import read_alerts
from sluice_ops.operations.connect import open_channel
from sluice_ops.site import project
from sluice_ops.site.site_file import Site, load
from sluice_ops.snapshot.sources import source_figures
from sluice_ops.snapshot.view import View, read_view


def snapshot() -> View:
    """Connect, take a snapshot of the channel, and disconnect."""
    with open_channel() as channel:
        return read_view(channel)


class Seen(NamedTuple):
    """The nodes of the channel that `sluice status` reads."""

    view: View
    alerts: AlertRecord = AlertRecord()
    sources: Mapping[str, SourceFigures] = {}
    """The figures of the sources that run."""


def snapshot_with_figures() -> Seen:
    """Take a snapshot of the channel, with alerts and figures of sources, in one connection."""
    with open_channel() as channel:
        view = read_view(channel)
        return Seen(view, read_alerts(channel), source_figures(channel, view))


def the_site() -> Site:
    """Return the content of this machine's site file."""
    return load(project.site_path())
