"""Entries of the trail in ZooKeeper, until the audit moves them to PostgreSQL.

A process writes the entry of a change in the same request as the change.
"""

import getpass
import time
from typing import NamedTuple, Protocol, TypeVar

from pydantic import BaseModel

from sluice_ops.channel.client import Read, Write
from sluice_ops.model import paths
from sluice_ops.model.access import Role
from sluice_ops.model.trail import Entry

M = TypeVar("M", bound=BaseModel)


class QueuedEntry(NamedTuple):
    """An entry in the queue."""

    role: Role
    """The role that wrote the entry."""
    name: str
    """The name of the entry's node below the role's node."""
    entry: Entry


class Reader(Protocol):
    """The part of the channel that `queued` needs."""

    def children(self, path: str) -> list[str]:
        """Return the names of the nodes below `path`."""

    def read(self, path: str, model: type[M]) -> Read[M] | None:
        """Return the value at `path`."""


def cli_user() -> str:
    """Return the name of the current user for the trail, such as `cli:anna`."""
    return f"cli:{getpass.getuser()}"


def write(role: Role, entry: Entry) -> Write:
    """Return the write of an entry, for the request with the recorded change."""
    return Write(paths.trail(role, f"{time.time_ns()}"), entry, None)


def queued(channel: Reader) -> list[QueuedEntry]:
    """Return all entries in the queue."""
    entries = []
    for role in paths.TRAIL_ROLES:
        for name in channel.children(f"{paths.TRAIL}/{role}"):
            read = channel.read(paths.trail(role, name), Entry)
            if read is not None:
                entries.append(QueuedEntry(Role(role), name, read.value))
    return entries
