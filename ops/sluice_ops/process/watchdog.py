"""A thread that watches whether a process's working loop goes on, and ends the process when it never will (decision record 0046).

kazoo renews a ZooKeeper session from threads of its own, so a loop that hangs would keep its session, its lead or its host for ever.
Used by the controller, by agents and by drivers.
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
"""Between two looks."""
MOST_SECONDS = 1.0
"""So much one look may add: a process that stood still itself, or a host that was suspended, has not watched."""
TASKS = Path("/proc/self/task")
SLEEPS = "S"
HUNG = 4
"""The exit code of a process whose working loop hung."""


@dataclass(frozen=True)
class Limits:
    """How long a loop may make no turn. Unit: seconds."""

    busy: float
    """Though its thread runs, or waits for a processor, a disk, or another process or thread that is at work."""
    idle: float
    """While its thread sleeps, and nothing that it may sleep for is at work."""


@dataclass(frozen=True)
class LoopSample:
    """What is seen of a loop at one look."""

    turns: int
    ran: float
    """How long its thread has run. Unit: seconds."""
    sleeps: bool
    held_up: bool = False
    """The loop may wait for another thread of the process, or for a process that it has called, and that one is at work."""
    excused: bool = False
    """It waits on purpose, or for a service."""


@dataclass(frozen=True)
class Stall:
    """For how long a loop has made no turn, while it was watched. Pure."""

    last: LoopSample
    seconds: float = 0.0
    idle: float = 0.0
    """Of these, the last ones in which its thread slept, without those in which it was held up."""

    def after(self, sight: LoopSample, passed: float) -> "Stall":
        """Return it as of a look so many seconds later."""
        if sight.turns != self.last.turns or sight.excused:
            return Stall(sight)
        more = min(passed, MOST_SECONDS)
        idle = (
            self.idle + (0.0 if sight.held_up else more)
            if sight.sleeps and sight.ran == self.last.ran
            else 0.0
        )
        return Stall(sight, self.seconds + more, idle)

    def hangs(self, limits: Limits) -> bool:
        """Tell whether the loop hangs."""
        return self.seconds >= limits.busy or self.idle >= limits.idle


class Watchdog:
    """Watches the loop of the thread that starts it."""

    def __init__(
        self,
        name: str,
        limits: Limits,
        services: tuple[str, ...] = (),
        called: tuple[str, ...] = (),
        give_up: Callable[[], None] = lambda: None,
    ) -> None:
        """Watch a loop; where a module of `services` is on its stack it waits for those, and may do so for ever.

        Where one of `called` is, it waits for a process of its own machine: that may take as long as being busy. Call `give_up` before the
        process ends.
        """
        self._name = name
        self._limits = limits
        self._services = services
        self._called = called
        self._give_up = give_up
        self._stop = threading.Event()
        self._turns = 0
        self._resting = 0
        self._thread = self._native = 0

    def start(self) -> None:
        """Begin."""
        self._thread, self._native = threading.get_ident(), threading.get_native_id()
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def stop(self) -> None:
        """Watch no more."""
        self._stop.set()

    def turn(self) -> None:
        """Say that the loop goes on: at each of its turns, and within a long one."""
        self._turns += 1

    @contextmanager
    def resting(self) -> Iterator[None]:
        """Have no turns missed: the loop waits on purpose."""
        self._resting += 1
        try:
            yield
        finally:
            self._resting -= 1
            self.turn()

    def _watch(self) -> None:
        still, before = Stall(self._look()), time.monotonic()
        while not self._stop.wait(EVERY_SECONDS):
            now = time.monotonic()
            still, before = still.after(self._look(still.last.turns), now - before), now
            if still.hangs(self._limits):
                self._end(still.seconds)
                return

    def _look(self, turns: int | None = None) -> LoopSample:
        """Look closer where the loop has made no turn since it had made so many."""
        frame = sys._current_frames().get(self._thread)  # noqa: SLF001 — no public way
        excused = self._resting > 0 or is_in(frame, self._services)
        try:
            ran = float((TASKS / str(self._native) / "schedstat").read_text().split()[0])
            sleeps = _state(self._native) == SLEEPS
        except OSError:  # a kernel that does not count
            return LoopSample(self._turns, 0.0, sleeps=False, excused=excused)
        held_up = self._turns == turns and (is_in(frame, self._called) or self._others_work())
        return LoopSample(self._turns, ran, sleeps=sleeps, held_up=held_up, excused=excused)

    def _others_work(self) -> bool:
        """Tell whether another thread of this process runs, or waits for a processor or a disk: the loop may wait for its lock."""
        for thread in TASKS.iterdir():
            if int(thread.name) not in {self._native, threading.get_native_id()}:
                with suppress(OSError):  # it has ended meanwhile
                    if _state(int(thread.name)) != SLEEPS:
                        return True
        return False

    def _end(self, seconds: float) -> None:
        faulthandler.dump_traceback(all_threads=True)
        since = time.strftime("%H:%M:%S UTC", time.gmtime(time.time() - seconds))
        message = f"{HUNG_SINCE} {since}: the working loop of the {self._name} has made no turn for {seconds:.0f} s; the {self._name} ends itself"
        log.error(message)
        giving = threading.Thread(target=self._give_up, daemon=True)
        giving.start()
        giving.join(2.0)
        sys.stderr.write(f"{message}\n")
        sys.stderr.flush()
        os._exit(HUNG)


def _state(thread: int) -> str:
    """Return the letter that the kernel has for a thread of this process."""
    return (TASKS / str(thread) / "stat").read_text().rpartition(")")[2].split()[0]


def is_in(frame: FrameType | None, modules: tuple[str, ...]) -> bool:
    """Tell whether a thread is in a call of one of these modules, or of what is below them."""
    while frame is not None:
        name = str(frame.f_globals.get("__name__"))
        if any(name == module or name.startswith(f"{module}.") for module in modules):
            return True
        frame = frame.f_back
    return False
