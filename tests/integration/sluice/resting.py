"""Single workers of a tier in a lab, each in turn: paused, kept and woken, while the others work on."""

import time
from collections.abc import Callable, Iterable

from sluice.kafka.reader import Seen
from sluice_ops.model.assignment import slot_id
from sluice_ops.model.incarnation import State, WorkerReceipt
from tests.lab import Lab, until

DRAINED_SECONDS, AWAKE_SECONDS = 2.0, 3.0
BUSY = 3.0
"""The promise holds on a machine of its own; one that does much else may take so many times as long."""
TOLD_SECONDS = 6.0
"""After so long a driver's figures have what its executors did: these tell every two seconds, and so does the driver."""


def done(lab: Lab, tier: str) -> dict[str, int]:
    """Return what each executor of a tier has done, as its driver counts it: records read, or tasks."""
    return dict(lab.query("select tier, slots from tier_progress")).get(tier, {})


def working(lab: Lab, tier: str, goes_on: Callable[[], bool]) -> int:
    """Return how many executors of a tier do something from now on."""
    time.sleep(TOLD_SECONDS)
    before = done(lab, tier)
    until("the tier goes on", goes_on, 60)
    time.sleep(TOLD_SECONDS)
    return more_done(lab, tier, before)


def more_done(lab: Lab, tier: str, before: dict[str, int]) -> int:
    """Return how many executors of a tier have done more than before."""
    return sum(count > before.get(place, 0) for place, count in done(lab, tier).items())


def each_rests(lab: Lab, tier: str, number: int, workers: int, out: Callable[[], int]) -> list[float]:
    """Have each worker of an incarnation pause and wake, and return when each was told; `out` says how much has come out of the tier."""

    def receipt(worker: str, *, paused: bool) -> WorkerReceipt:
        def told() -> WorkerReceipt | None:
            said = lab.report(tier, number)
            found = None if said is None else said.workers.get(worker)
            return found if found is not None and found.paused is paused else None

        return until(f"{worker} is {'paused' if paused else 'awake'}", told, 30)

    def more() -> Callable[[], bool]:
        before = out()
        return lambda: out() > before + 100

    took, at = [], []
    for worker in (slot_id(tier, number, each) for each in range(workers)):
        begun = time.monotonic()
        at.append(time.time())
        lab.set_owner(tier, number, paused_workers=(worker,))
        drained = receipt(worker, paused=True)
        told = time.monotonic() - begun
        assert drained.failed == 0
        assert lab.processes[worker].poll() is None, "its slot is kept"
        assert working(lab, tier, more()) == workers - 1
        before, begun = done(lab, tier), time.monotonic()
        at.append(time.time())
        lab.set_owner(tier, number)
        awake = receipt(worker, paused=False)
        until("all of them work again", lambda before=before: more_done(lab, tier, before) == workers, 60)
        took.append((round(told, 2), drained.seconds, awake.seconds, round(time.monotonic() - begun, 2)))
    print(f"{tier}: told, drained, awake, seen at work: {took}")
    assert max(each[0] for each in took) < DRAINED_SECONDS * BUSY
    assert max(each[2] for each in took) < AWAKE_SECONDS * BUSY
    assert max(each[3] for each in took) < AWAKE_SECONDS * BUSY + TOLD_SECONDS
    said = lab.report(tier, number)
    assert said is not None
    assert said.state is State.RUNNING
    assert said.flowed is None or said.flowed.restarts == 0, "nothing has failed"
    return at


def last_is_let_go(lab: Lab, tier: str, number: int, workers: int, out: Callable[[], int]) -> None:
    """Have the last worker of an incarnation do its last task and its slot taken away; the others go on, also when the tier was held."""
    worker = slot_id(tier, number, workers - 1)

    def is_paused() -> bool:
        said = lab.report(tier, number)
        return said is not None and worker in said.paused_workers

    def goes_on() -> None:
        before = out()
        until("the tier goes on", lambda: out() > before + 100, 60)

    lab.set_owner(tier, number, paused_workers=(worker,))
    until(f"{worker} is paused", is_paused, 30)
    lab.processes[worker].terminate()
    lab.processes[worker].wait(30)
    goes_on()
    for paused, state in ((True, State.PAUSED), (False, State.RUNNING)):
        lab.set_owner(tier, number, paused=paused, paused_workers=(worker,))
        until(
            f"{tier} is {state}",
            lambda state=state: (said := lab.report(tier, number)) is not None and said.state is state,
            60,
        )
    goes_on()
    said = lab.report(tier, number)
    assert said is not None
    assert said.flowed is None or said.flowed.restarts == 0, said.flowed
    assert worker in said.paused_workers


def gaps(seen: Iterable[Seen], at: list[float]) -> list[float]:
    """Return the longest time in which nothing new came out of some input partition, after each of these moments."""
    newest: dict[str, tuple[int, int]] = {}
    longest = [0.0] * len(at)
    for out in sorted((each.out for each in seen), key=lambda each: each.at):
        offset, last = newest.get(out.partition, (-1, out.at))
        if out.offset > offset:
            newest[out.partition] = (out.offset, out.at)
            after = sum(out.at > moment * 1000 for moment in at)
            if after:
                longest[after - 1] = max(longest[after - 1], (out.at - last) / 1000)
    return longest
