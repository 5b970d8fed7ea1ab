"""Run the steps of a start side by side: each as soon as what it needs is done; the first failure ends them all."""

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
    """One thing to do."""

    name: str
    act: Callable[[threading.Event], str]
    """Do it, and return what to tell about it; stop early when the event is set."""
    needs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Timing:
    """When a step began and ended, in seconds from the start of the whole, and what it said."""

    name: str
    began: float
    ended: float
    said: str

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.ended - self.began


class UnknownNeedError(Exception):
    """A step needs one that is not there, or itself."""


def check(steps: Sequence[Step]) -> None:
    """Refuse a set of steps that cannot be finished."""
    done: set[str] = set()
    waiting = list(steps)
    while waiting:
        able = [step for step in waiting if done.issuperset(step.needs)]
        if not able:
            listed = ", ".join(
                f"{step.name} (needs {', '.join(sorted(set(step.needs) - done))})" for step in waiting
            )
            message = f"these steps can never start: {listed}"
            raise UnknownNeedError(message)
        done.update(step.name for step in able)
        waiting = [step for step in waiting if step not in able]


@contextmanager
def _noted(numbers: Sequence[signal.Signals] = (signal.SIGINT, signal.SIGTERM)) -> Iterator[list[int]]:
    """Yield a list that such signals are added to; an exception in their place could come while a lock is held that threads wait for."""
    noted: list[int] = []
    before = {
        number: signal.signal(number, lambda number, _frame: noted.append(number)) for number in numbers
    }
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run(
    steps: Sequence[Step], tell: Callable[[Timing], None], clock: Callable[[], float] = time.monotonic
) -> list[Timing]:
    """Run them all and return their timings.

    Raise what the first failing step raised, or KeyboardInterrupt at Ctrl-C and SIGTERM, after the others were told to stop and have ended.
    """
    check(steps)
    begun = clock()
    halt = threading.Event()
    timings: dict[str, Timing] = {}
    waiting = list(steps)
    running: dict[Future[Timing], Step] = {}

    def perform(step: Step) -> Timing:
        began = clock() - begun
        said = step.act(halt)
        return Timing(step.name, began, clock() - begun, said)

    with (
        _noted() as interrupts,
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
