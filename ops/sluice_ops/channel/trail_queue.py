"""Entries of the trail in the channel, where they wait for the audit to move them to PostgreSQL. A change writes its entry with itself."""

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
    """An entry, and where it is."""

    role: Role
    name: str
    entry: Entry


class Reader(Protocol):
    """What is asked of the channel."""

    def children(self, path: str) -> list[str]:
        """Return the names below `path`."""

    def read(self, path: str, model: type[M]) -> Read[M] | None:
        """Return the value at `path`."""


def cli_user() -> str:
    """Say who asks, on a command line."""
    return f"cli:{getpass.getuser()}"


def write(role: Role, entry: Entry) -> Write:
    """Return the write that records an entry, for the request that carries out what it tells."""
    return Write(paths.trail(role, f"{time.time_ns()}"), entry, None)


def queued(channel: Reader) -> list[QueuedEntry]:
    """Return all entries that are in the channel."""
    found = []
    for role in paths.TRAIL_ROLES:
        for name in channel.children(f"{paths.TRAIL}/{role}"):
            read = channel.read(paths.trail(role, name), Entry)
            if read is not None:
                found.append(QueuedEntry(Role(role), name, read.value))
    return found
