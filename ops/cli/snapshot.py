"""One look at the channel for a command."""

import os
from pathlib import Path

from ops.cli.connect import open_channel
from ops.controller.view import View, look
from ops.site import Site, load


def snapshot() -> View:
    """Connect, look at everything once, disconnect."""
    with open_channel() as channel:
        return look(channel)


def the_site() -> Site:
    """Return what this machine's site file says."""
    return load(Path(os.environ["SLUICE_SITE"]))
