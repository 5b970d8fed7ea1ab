"""A loop that goes on is never ended, one that hangs is within its limit, whatever the process's threads and clocks do."""

import re
import subprocess
import sys
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_ops.process import watchdog as module
from sluice_ops.process.watchdog import HUNG, LoopLimits, LoopSample, Stall, Watchdog, is_in

LIMITS = LoopLimits(busy=60.0, idle=6.0)
PASSED = st.floats(0.0, 100_000.0)
"""From one look to the next: also a machine that was suspended for a day."""
SIGHTS = st.builds(
    LoopSample,
    st.integers(0, 3),
    st.floats(0, 10),
    sleeps=st.booleans(),
    held_up=st.booleans(),
    excused=st.booleans(),
)


@given(st.lists(st.tuples(PASSED, SIGHTS), max_size=200))
def test_a_loop_that_turns_or_is_excused_between_looks_goes_on(looks: list[tuple[float, LoopSample]]) -> None:
    still = Stall(LoopSample(-1, 0.0, sleeps=True))
    for number, (passed, sight) in enumerate(looks):
        turned = sight if sight.excused else LoopSample(number, sight.ran, sleeps=sight.sleeps)
        still = still.after(turned, passed)
        assert not still.hangs(LIMITS)


@given(st.lists(st.tuples(PASSED, SIGHTS), max_size=50), st.booleans())
def test_one_that_hangs_is_found_within_its_limit(
    looks: list[tuple[float, LoopSample]], sleeps: bool
) -> None:
    still = Stall(LoopSample(0, 0.0, sleeps=sleeps))
    for passed, sight in looks:
        still = still.after(sight, passed)
    still, seconds, ran = Stall(LoopSample(9, 0.0, sleeps=sleeps)), 0.0, 0.0
    while not still.hangs(LIMITS):
        ran += 0.0 if sleeps else 0.1
        still = still.after(LoopSample(9, ran, sleeps=sleeps), 0.5)
        seconds += 0.5
    assert seconds == (LIMITS.idle if sleeps else LIMITS.busy)


@given(st.lists(st.tuples(st.floats(0.0, 1.0), st.booleans(), st.booleans()), max_size=200))
def test_one_that_sleeps_while_what_it_waits_for_is_at_work_is_busy(
    looks: list[tuple[float, bool, bool]],
) -> None:
    """The limit of those that sleep counts no look at which another thread, or who was called, was at work; it goes on counting after."""
    still, alone, ran = Stall(LoopSample(0, 0.0, sleeps=True)), 0.0, 0.0
    for passed, held_up, runs in looks:
        ran += 0.1 if runs else 0.0
        still = still.after(LoopSample(0, ran, sleeps=True, held_up=held_up), passed)
        alone = 0.0 if runs else alone + (0.0 if held_up else passed)
        assert still.idle == pytest.approx(alone)
        assert still.hangs(LIMITS) is (still.idle >= LIMITS.idle or still.seconds >= LIMITS.busy)


@given(st.lists(PASSED, max_size=5))
def test_a_few_late_looks_end_nothing(passed: list[float]) -> None:
    still = Stall(LoopSample(0, 0.0, sleeps=True))
    for each in passed:
        still = still.after(LoopSample(0, 0.0, sleeps=True), each)
    assert not still.hangs(LIMITS), "the process stood still itself, or the host was suspended"


WATCHED = """
import sys, threading, time
from sluice_ops.process import watchdog
from sluice_ops.process.watchdog import LoopLimits, Watchdog
watchdog.EVERY_SECONDS = 0.02
dog = Watchdog("loop of a test", LoopLimits(busy=2.0, idle=0.5), ("serving",), ("called",), lambda: print("gives up", flush=True))
dog.start()
lock = threading.Lock()
lock.acquire()
def spin():
    end = time.monotonic() + 1.3
    while time.monotonic() < end: pass
{body}
print("goes on", flush=True)
"""


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("threading.Event().wait(20)", HUNG),
        ("end = time.monotonic() + 20\nwhile time.monotonic() < end: pass", HUNG),
        ("for _ in range(60):\n    dog.turn()\n    time.sleep(0.02)", 0),
        ("with dog.resting(): time.sleep(1.2)", 0),
        (
            "scope = {'__name__': 'serving.deep', 'time': time}\nexec('def wait(): time.sleep(1.2)', scope)\nscope['wait']()",
            0,
        ),
        (
            "scope = {'__name__': 'called', 'time': time}\nexec('def wait(seconds): time.sleep(seconds)', scope)\nscope['wait'](1.2)",
            0,
        ),
        (
            "scope = {'__name__': 'called', 'time': time}\nexec('def wait(seconds): time.sleep(seconds)', scope)\nscope['wait'](20)",
            HUNG,
        ),
        ("threading.Thread(target=spin).start()\nlock.acquire(timeout=1.2)", 0),
        ("dog.stop()\ntime.sleep(1.2)", 0),
    ],
    ids=[
        "sleeps",
        "spins",
        "turns",
        "rests",
        "is served",
        "is answered late",
        "is not answered",
        "waits for a thread",
        "is not watched",
    ],
)
def test_a_process_whose_loop_hangs_ends_itself(body: str, code: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WATCHED.format(body=body)],
        capture_output=True,
        text=True,
        check=False,
        timeout=25,
    )
    assert done.returncode == code, done.stderr
    assert ("goes on" in done.stdout) is (code == 0)
    if code == HUNG:
        assert "gives up" in done.stdout
        last = done.stderr.splitlines()[-1]
        assert re.match(
            r"hung since \d\d:\d\d:\d\d UTC: the working loop of the loop of a test has made no progress for ",
            last,
        )
        assert "Thread" in done.stderr, "where each thread stood"


def test_a_thread_that_has_ended_waits_for_nothing() -> None:
    assert not is_in(None, ("kazoo",))


def test_a_stopped_watchdog_ends_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EVERY_SECONDS", 0.01)
    dog = Watchdog("test", LoopLimits(busy=0.2, idle=0.2))
    loop = threading.Thread(target=dog.start)
    loop.start()
    dog.stop()
    loop.join()
    time.sleep(0.5)
