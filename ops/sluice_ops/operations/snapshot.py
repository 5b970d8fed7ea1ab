"""One look at the channel for a command."""

import os
from pathlib import Path

from sluice_ops.operations.connect import open_channel
from sluice_ops.site.site_file import Site, load
from sluice_ops.snapshot.view import View, look


def snapshot() -> View:
    """Connect, look at everything once, disconnect."""
    with open_channel() as channel:
        return look(channel)


def the_site() -> Site:
    """Return what this machine's site file says."""
    return load(Path(os.environ["SLUICE_SITE"]))
