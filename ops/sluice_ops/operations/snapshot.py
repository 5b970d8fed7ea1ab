"""One snapshot of the channel for a command, and the site file."""

from sluice_ops.model.alert import AlertRecord
from sluice_ops.operations.alerts import read_alerts
from sluice_ops.operations.connect import open_channel
from sluice_ops.site import project
from sluice_ops.site.site_file import Site, load
from sluice_ops.snapshot.view import View, read_view


def snapshot() -> View:
    """Connect, take a snapshot of the channel, and disconnect."""
    with open_channel() as channel:
        return read_view(channel)


def snapshot_and_alerts() -> tuple[View, AlertRecord]:
    """Take a snapshot of the channel, and read the alerts, in one connection."""
    with open_channel() as channel:
        return read_view(channel), read_alerts(channel)


def the_site() -> Site:
    """Return the content of this machine's site file."""
    return load(project.site_path())
