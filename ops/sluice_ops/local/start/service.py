"""The description of a service: its program, its preparation, and the check that it answers."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path


class NotReadyError(Exception):
    """The service does not answer yet; the message says why. Temporary."""


def nothing() -> None:
    """Prepare nothing."""


@dataclass(frozen=True)
class Program:
    """One process under supervisord."""

    command: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)
    directory: Path | None = None
    user: str | None = None
    """The user of the process; None: the user who started the platform."""
    nice: int = 0
    """The niceness, from -20 (first) to 19 (last)."""
    once: bool = False
    """The program ends by itself, and supervisord does not restart it."""
    last_exit: int | None = None
    """The exit code after which supervisord does not restart the program; None: there is none."""
    stop_signal: str = "TERM"
    stop_seconds: int = 15


@dataclass(frozen=True)
class Service:
    """One service of the platform."""

    name: str
    program: Program
    ready: Callable[[], None]
    """Send a real request; any exception means that the service does not answer yet."""
    prepare: Callable[[], None] = nothing
    """Create files on disk, such as a configuration or a database.

    `up` calls this before it starts the service, never while the service runs.
    """
    after: Callable[[], None] = nothing
    """Create what other services need, such as a database or a chroot, once the service answers."""
    needs: tuple[str, ...] = ()
    """Services and steps that must be ready before this one starts."""
    ready_seconds: float = 120.0
    """Limit for the service to answer after its start."""
    ports: tuple[int, ...] = ()
    advice: str = ""
    """The next step if the service does not start, in addition to its log."""
