"""A query whose own thread hangs is reported, because no task and no loop shows it."""

import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from sluice.driver.counters import Flow
from sluice.driver.process import query_watchdog as module
from sluice.driver.process.query_watchdog import QueryWatchdog

ENDS = {"hits/0": 20, "hits/1": 7}
STANDS = {"hits/0": 15, "hits/1": 7}
LOOK = 2.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(
        module,
        "time",
        SimpleNamespace(
            monotonic=lambda: now[0], **{name: getattr(time, name) for name in ("time", "strftime", "gmtime")}
        ),
    )
    return now


def watchdog(hangs_after: float | None = 600.0) -> QueryWatchdog:
    return QueryWatchdog(cast("Any", SimpleNamespace(name="counts", hangs_after=hangs_after)), Flow())


def seconds_until_report(
    dog: QueryWatchdog, clock: list[float], running: tuple[int, ...] = (), step: float = LOOK
) -> float | None:
    """Look for an hour at a query that stands; return after how many seconds it is reported."""
    begun = clock[0]
    while clock[0] < begun + 3600:
        if dog.check(running, ENDS, STANDS) is not None:
            return clock[0] - begun
        clock[0] += step
    return None


@pytest.fixture
def hanging_engine() -> Iterator[threading.Thread]:
    """Run a query thread that waits for a lock for ever."""
    end = threading.Event()

    def put_a_batch() -> None:
        end.wait()

    thread = threading.Thread(target=put_a_batch, name="query of counts")
    thread.start()
    yield thread
    end.set()
    thread.join()


def test_a_hung_query_thread_is_reported_with_its_stack(
    clock: list[float], hanging_engine: threading.Thread
) -> None:
    dog = watchdog()
    with capture_logs() as logs:
        assert seconds_until_report(dog, clock) == pytest.approx(300, abs=2 * LOOK)
        report = dog.check((), ENDS, STANDS)
    assert report is not None
    assert report.sentence.startswith("hung since ")
    assert report.sentence.endswith("hand the tier over: sluice migrate counts HOST")
    (entry,) = logs
    assert f"{hanging_engine.name}:" in entry["stacks"]
    assert "put_a_batch" in entry["stacks"]


@pytest.mark.parametrize(("hangs_after", "told"), [(60.0, 60), (3600.0, 1800), (None, 300)])
def test_it_is_reported_after_half_of_hangs_after(
    clock: list[float], hangs_after: float | None, told: float
) -> None:
    assert seconds_until_report(watchdog(hangs_after), clock) == pytest.approx(told, abs=2 * LOOK)


def test_a_query_that_works_or_waits_on_purpose_does_not_hang(clock: list[float]) -> None:
    assert seconds_until_report(watchdog(), clock, running=(1,)) is None, "its tasks are watched"
    for field, value in {"away": "no route to host", "metered": True}.items():
        dog = watchdog()
        setattr(dog._flow, field, value)
        assert seconds_until_report(dog, clock) is None
    dog = watchdog()
    for done in range(2000):
        clock[0] += LOOK
        assert dog.check((), {"hits/0": done + 9}, {"hits/0": done}) is None, "batches end"
        assert dog.check((), {"hits/0": done}, {"hits/0": done}) is None, "no input waits"


def test_a_batch_that_ends_late_ends_the_report(clock: list[float]) -> None:
    dog = watchdog()
    assert seconds_until_report(dog, clock) is not None
    assert dog.check((), ENDS, {**STANDS, "hits/0": 16}) is None
    assert seconds_until_report(dog, clock) == pytest.approx(300, abs=2 * LOOK)


def test_a_driver_that_stood_still_itself_does_not_count_that_time(clock: list[float]) -> None:
    assert seconds_until_report(watchdog(), clock, step=1000.0) is None
