"""Pause and resume the workers of a tier in a lab one after the other, while the other workers go
on.
"""

import time
from collections.abc import Callable, Iterable

from sluice.kafka.reader import Seen
from sluice_ops.model.assignment import slot_id
from sluice_ops.model.incarnation import State, WorkerReceipt
from tests.lab import Lab, until

DRAINED_SECONDS, AWAKE_SECONDS = 2.0, 3.0
BUSY_FACTOR = 3.0
"""The limits hold on an idle machine; on a busy one, times may be longer by this factor."""
REPORT_SECONDS = 6.0
"""The time after which a driver's metrics include its executors' work: executors and driver report
every two seconds.
"""


def work_done(lab: Lab, tier: str) -> dict[str, int]:
    """Return the work of each executor of a tier, as its driver counts it: records read,
    or tasks.
    """
    return dict(lab.query("select tier, slots from tier_progress")).get(tier, {})


def count_working(lab: Lab, tier: str, continues: Callable[[], bool]) -> int:
    """Return how many executors of a tier work from now on."""
    time.sleep(REPORT_SECONDS)
    before = work_done(lab, tier)
    until("the tier continues", continues, 60)
    time.sleep(REPORT_SECONDS)
    return more_done(lab, tier, before)


def more_done(lab: Lab, tier: str, before: dict[str, int]) -> int:
    """Return how many executors of a tier have done more work than before."""
    return sum(count > before.get(place, 0) for place, count in work_done(lab, tier).items())


def pause_each_worker(lab: Lab, tier: str, number: int, workers: int, out: Callable[[], int]) -> list[float]:
    """Pause and resume each worker of an incarnation; return the times of the requests.

    `out` returns the number of the tier's output records.
    """

    def receipt(worker: str, *, paused: bool) -> WorkerReceipt:
        def reported_receipt() -> WorkerReceipt | None:
            report = lab.report(tier, number)
            worker_receipt = None if report is None else report.workers.get(worker)
            return worker_receipt if worker_receipt is not None and worker_receipt.paused is paused else None

        return until(f"{worker} is {'paused' if paused else 'awake'}", reported_receipt, 30)

    def has_more_output() -> Callable[[], bool]:
        before = out()
        return lambda: out() > before + 100

    timings, request_times = [], []
    for worker in (slot_id(tier, number, index) for index in range(workers)):
        requested = time.monotonic()
        request_times.append(time.time())
        lab.set_owner(tier, number, paused_workers=(worker,))
        drained = receipt(worker, paused=True)
        answered = time.monotonic() - requested
        assert drained.failed == 0
        assert lab.processes[worker].poll() is None, "the paused worker keeps its slot"
        assert count_working(lab, tier, has_more_output()) == workers - 1
        before, requested = work_done(lab, tier), time.monotonic()
        request_times.append(time.time())
        lab.set_owner(tier, number)
        awake = receipt(worker, paused=False)
        until("all workers work again", lambda before=before: more_done(lab, tier, before) == workers, 60)
        timings.append(
            (round(answered, 2), drained.seconds, awake.seconds, round(time.monotonic() - requested, 2))
        )
    print(f"{tier}: answered, drained, awake, seen at work: {timings}")
    assert max(timing[0] for timing in timings) < DRAINED_SECONDS * BUSY_FACTOR
    assert max(timing[2] for timing in timings) < AWAKE_SECONDS * BUSY_FACTOR
    assert max(timing[3] for timing in timings) < AWAKE_SECONDS * BUSY_FACTOR + REPORT_SECONDS
    report = lab.report(tier, number)
    assert report is not None
    assert report.state is State.RUNNING
    assert report.flowed is None or report.flowed.restarts == 0, "no query has restarted"
    return request_times


def release_last_worker(lab: Lab, tier: str, number: int, workers: int, out: Callable[[], int]) -> None:
    """Pause the last worker of an incarnation and end its slot; the other workers go on, also after
    a pause of the tier.
    """
    worker = slot_id(tier, number, workers - 1)

    def is_paused() -> bool:
        report = lab.report(tier, number)
        return report is not None and worker in report.paused_workers

    def assert_continues() -> None:
        before = out()
        until("the tier continues", lambda: out() > before + 100, 60)

    lab.set_owner(tier, number, paused_workers=(worker,))
    until(f"{worker} is paused", is_paused, 30)
    lab.processes[worker].terminate()
    lab.processes[worker].wait(30)
    assert_continues()
    for paused, state in ((True, State.PAUSED), (False, State.RUNNING)):
        lab.set_owner(tier, number, paused=paused, paused_workers=(worker,))
        until(
            f"{tier} is {state}",
            lambda state=state: (report := lab.report(tier, number)) is not None and report.state is state,
            60,
        )
    assert_continues()
    report = lab.report(tier, number)
    assert report is not None
    assert report.flowed is None or report.flowed.restarts == 0, report.flowed
    assert worker in report.paused_workers


def gaps(seen: Iterable[Seen], times: list[float]) -> list[float]:
    """Return, after each of these times, the longest time without new output of some input
    partition.
    """
    newest: dict[str, tuple[int, int]] = {}
    longest = [0.0] * len(times)
    for out in sorted((record.out for record in seen), key=lambda out: out.at):
        offset, last = newest.get(out.partition, (-1, out.at))
        if out.offset > offset:
            newest[out.partition] = (out.offset, out.at)
            after = sum(out.at > moment * 1000 for moment in times)
            if after:
                longest[after - 1] = max(longest[after - 1], (out.at - last) / 1000)
    return longest
