"""What the platform knows of one service: how it is prepared, which program runs it, and how one sees that it answers."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path


class NotReadyError(Exception):
    """The service does not answer yet; the message says what was asked. Temporary."""


def nothing() -> None:
    """Prepare nothing."""


@dataclass(frozen=True)
class Program:
    """One process under supervisord."""

    command: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)
    directory: Path | None = None
    user: str | None = None
    """Whom it runs as; None for whoever started the platform."""
    nice: int = 0
    """How much it gives way when the processors are busy: -20 to 19."""
    once: bool = False
    """It ends by itself when it has done its part, and is not started again then."""
    stop_signal: str = "TERM"
    stop_seconds: int = 15


@dataclass(frozen=True)
class Service:
    """One program with everything around it."""

    name: str
    program: Program
    ready: Callable[[], None]
    """Ask it something real; any exception means not yet."""
    prepare: Callable[[], None] = nothing
    """Make what it needs on disk: configuration, an initial database. Called before `up` starts it, never while it runs."""
    after: Callable[[], None] = nothing
    """Make what others need of it once it answers: a database, a chroot."""
    needs: tuple[str, ...] = ()
    """Services and steps that have to be ready before it starts."""
    patience: float = 120.0
    """Seconds until it has to answer."""
    ports: tuple[int, ...] = ()
    advice: str = ""
    """What to do when it does not come up, beyond reading its log."""
