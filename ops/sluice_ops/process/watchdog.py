"""A thread that watches a process's working loop, and ends the process if the loop hangs (decision
46).

kazoo renews the ZooKeeper session in other threads. So a process with a hanging loop would keep its
session, and with it its lead or its host, for ever. The controller, agents, drivers and sources use
this module.
"""

import faulthandler
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import structlog

from sluice_ops.model.assignment import HUNG_SINCE

log = structlog.get_logger()

EVERY_SECONDS = 0.5
"""The time between two checks."""
MOST_SECONDS = 1.0
"""The most time that one check adds to a stall: a stopped process, or a suspended host, has not
watched the rest.
"""
TASKS = Path("/proc/self/task")
SLEEPS = "S"
HUNG = 4
"""The exit code of a process whose working loop hung."""


@dataclass(frozen=True)
class LoopLimits:
    """How long a loop may make no turn before it counts as hung. Unit: seconds."""

    busy: float
    """The limit in any case, also while the thread works or waits for something that works: a
    processor, a disk, another thread or a called process.
    """
    idle: float
    """The limit while the thread sleeps, and nothing works for which it may wait."""


@dataclass(frozen=True)
class LoopSample:
    """The state of a loop at one check."""

    turns: int
    """How many turns the loop has made."""
    ran: float
    """How long the loop's thread has run. Unit: seconds."""
    sleeps: bool
    """Whether the loop's thread sleeps."""
    held_up: bool = False
    """Whether the loop may wait for another thread, or for a called process, that works."""
    excused: bool = False
    """Whether the loop waits on purpose, or for a service."""


@dataclass(frozen=True)
class Stall:
    """How long a watched loop has made no progress. Pure. Unit: seconds."""

    last: LoopSample
    seconds: float = 0.0
    idle: float = 0.0
    """The last part of `seconds` in which the thread slept, without the time in which it was held
    up.
    """

    def after(self, sample: LoopSample, passed: float) -> "Stall":
        """Return the stall at a check that comes `passed` seconds later."""
        if sample.turns != self.last.turns or sample.excused:
            return Stall(sample)
        more = min(passed, MOST_SECONDS)
        idle = (
            self.idle + (0.0 if sample.held_up else more)
            if sample.sleeps and sample.ran == self.last.ran
            else 0.0
        )
        return Stall(sample, self.seconds + more, idle)

    def hangs(self, limits: LoopLimits) -> bool:
        """Tell whether the loop hangs."""
        return self.seconds >= limits.busy or self.idle >= limits.idle


class Watchdog:
    """Watches the loop of the thread that calls `start`."""

    def __init__(  # noqa: PLR0913, PLR0917 - what a process has of its own
        self,
        name: str,
        limits: LoopLimits,
        services: tuple[str, ...] = (),
        called: tuple[str, ...] = (),
        give_up: Callable[[], None] = lambda: None,
        exit_code: int = HUNG,
    ) -> None:
        """Watch the loop called `name` in messages.

        While a module of `services` is on the loop's stack, the loop waits for a service, without a
        limit. While a module of `called` is, the loop waits for a process of this machine: the
        limit `busy` holds. `give_up` is called before the process ends.
        """
        self._name = name
        self._limits = limits
        self._services = services
        self._called = called
        self._give_up = give_up
        self._exit_code = exit_code
        self._stop = threading.Event()
        self._turns = 0
        self._resting = 0
        self._thread = self._native = 0

    def start(self) -> None:
        """Start to watch the calling thread."""
        self._thread, self._native = threading.get_ident(), threading.get_native_id()
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def stop(self) -> None:
        """Stop watching."""
        self._stop.set()

    def turn(self) -> None:
        """Tell that the loop makes progress. Call it at each turn, and within long turns."""
        self._turns += 1

    @contextmanager
    def resting(self) -> Iterator[None]:
        """Excuse the loop within the block, where it waits on purpose."""
        self._resting += 1
        try:
            yield
        finally:
            self._resting -= 1
            self.turn()

    def _watch(self) -> None:
        stall, before = Stall(self._sample()), time.monotonic()
        while not self._stop.wait(EVERY_SECONDS):
            now = time.monotonic()
            stall, before = stall.after(self._sample(stall.last.turns), now - before), now
            if stall.hangs(self._limits):
                self._end(stall.seconds)
                return

    def _sample(self, turns: int | None = None) -> LoopSample:
        """Return the loop's state; `held_up` is only checked if the loop still has `turns`
        turns.
        """
        frame = sys._current_frames().get(self._thread)  # noqa: SLF001 — no public way
        excused = self._resting > 0 or is_in(frame, self._services)
        try:
            ran = float((TASKS / str(self._native) / "schedstat").read_text().split()[0])
            sleeps = _state(self._native) == SLEEPS
        except OSError:  # the kernel does not count processor time
            return LoopSample(self._turns, 0.0, sleeps=False, excused=excused)
        held_up = self._turns == turns and (is_in(frame, self._called) or self._others_work())
        return LoopSample(self._turns, ran, sleeps=sleeps, held_up=held_up, excused=excused)

    def _others_work(self) -> bool:
        """Tell whether another thread of this process runs, or waits for a processor or a disk.

        The loop may wait for a lock of this thread.
        """
        for thread in TASKS.iterdir():
            if int(thread.name) not in {self._native, threading.get_native_id()}:
                with suppress(OSError):  # the thread has ended meanwhile
                    if _state(int(thread.name)) != SLEEPS:
                        return True
        return False

    def _end(self, seconds: float) -> None:
        faulthandler.dump_traceback(all_threads=True)
        since = time.strftime("%H:%M:%S UTC", time.gmtime(time.time() - seconds))
        message = (
            f"{HUNG_SINCE} {since}: the working loop of the {self._name} has made no progress for "
            f"{seconds:.0f} s; the {self._name} ends itself; the stacks of all threads are in its log"
        )
        log.error(message)
        giving_up = threading.Thread(target=self._give_up, daemon=True)
        giving_up.start()
        giving_up.join(2.0)
        sys.stderr.write(f"{message}\n")
        sys.stderr.flush()
        os._exit(self._exit_code)


def _state(thread: int) -> str:
    """Return the kernel's letter for the state of a thread of this process, such as S for
    sleeps.
    """
    return (TASKS / str(thread) / "stat").read_text().rpartition(")")[2].split()[0]


def is_in(frame: FrameType | None, modules: tuple[str, ...]) -> bool:
    """Tell whether one of these modules, or a module below them, is on a thread's stack."""
    while frame is not None:
        name = str(frame.f_globals.get("__name__"))
        if any(name == module or name.startswith(f"{module}.") for module in modules):
            return True
        frame = frame.f_back
    return False
