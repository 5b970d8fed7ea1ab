"""Run the steps of a start in parallel, each once the steps that it needs are done.

The first failure ends all steps.
"""

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass

POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Step:
    """One step of a start."""

    name: str
    act: Callable[[threading.Event], str]
    """Carry the step out, and return its result as text; stop early if the event is set."""
    needs: tuple[str, ...] = ()
    """Names of the steps that must be done before."""


@dataclass(frozen=True)
class Timing:
    """A finished step: its begin and end, in seconds from the start, and its result as text."""

    name: str
    began: float
    ended: float
    said: str

    @property
    def seconds(self) -> float:
        """The duration in seconds."""
        return self.ended - self.began


class UnknownNeedError(Exception):
    """A step needs an unknown step, or directly or indirectly itself."""


def check(steps: Sequence[Step]) -> None:
    """Raise UnknownNeedError if some steps could never start."""
    done: set[str] = set()
    waiting = list(steps)
    while waiting:
        startable = [step for step in waiting if done.issuperset(step.needs)]
        if not startable:
            listed = ", ".join(
                f"{step.name} (needs {', '.join(sorted(set(step.needs) - done))})" for step in waiting
            )
            message = f"these steps can never start: {listed}"
            raise UnknownNeedError(message)
        done.update(step.name for step in startable)
        waiting = [step for step in waiting if step not in startable]


@contextmanager
def _record_signals(
    numbers: Sequence[signal.Signals] = (signal.SIGINT, signal.SIGTERM),
) -> Iterator[list[int]]:
    """Yield a list that receives these signals instead of an exception.

    An exception could come while this thread holds a lock that other threads wait for.
    """
    received: list[int] = []
    before = {
        number: signal.signal(number, lambda number, _frame: received.append(number)) for number in numbers
    }
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run(
    steps: Sequence[Step], tell: Callable[[Timing], None], clock: Callable[[], float] = time.monotonic
) -> list[Timing]:
    """Run all steps and return their timings; call `tell` after each step.

    Raises the exception of the first failing step, or KeyboardInterrupt at Ctrl-C and SIGTERM. In
    both cases, the other steps are halted and have ended before.
    """
    check(steps)
    start = clock()
    halt = threading.Event()
    timings: dict[str, Timing] = {}
    waiting = list(steps)
    running: dict[Future[Timing], Step] = {}

    def perform(step: Step) -> Timing:
        began = clock() - start
        result = step.act(halt)
        return Timing(step.name, began, clock() - start, result)

    with (
        _record_signals() as interrupts,
        ThreadPoolExecutor(max_workers=max(1, len(steps)), thread_name_prefix="step") as pool,
    ):
        try:
            while (waiting or running) and not interrupts:
                for step in [step for step in waiting if timings.keys() >= set(step.needs)]:
                    waiting.remove(step)
                    running[pool.submit(perform, step)] = step
                for future in wait(running, POLL_SECONDS, return_when=FIRST_COMPLETED).done:
                    timing = future.result()
                    timings[running.pop(future).name] = timing
                    tell(timing)
        finally:
            halt.set()
    if interrupts:
        raise KeyboardInterrupt
    return list(timings.values())
