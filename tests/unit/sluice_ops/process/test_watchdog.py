"""The watchdog never ends a loop that makes progress, and ends a hung loop within its limit,
whatever the process's threads and clocks do.
"""

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
"""Seconds from one look to the next; a machine may be suspended for a day."""
SIGHTS = st.builds(
    LoopSample,
    st.integers(0, 3),
    st.floats(0, 10),
    sleeps=st.booleans(),
    held_up=st.booleans(),
    excused=st.booleans(),
)


@given(st.lists(st.tuples(PASSED, SIGHTS), max_size=200))
def test_a_loop_that_turns_or_is_excused_is_not_ended(looks: list[tuple[float, LoopSample]]) -> None:
    stall = Stall(LoopSample(-1, 0.0, sleeps=True))
    for number, (passed, sight) in enumerate(looks):
        turned = sight if sight.excused else LoopSample(number, sight.ran, sleeps=sight.sleeps)
        stall = stall.after(turned, passed)
        assert not stall.hangs(LIMITS)


@given(st.lists(st.tuples(PASSED, SIGHTS), max_size=50), st.booleans())
def test_a_hung_loop_is_found_within_its_limit(looks: list[tuple[float, LoopSample]], sleeps: bool) -> None:
    stall = Stall(LoopSample(0, 0.0, sleeps=sleeps))
    for passed, sight in looks:
        stall = stall.after(sight, passed)
    stall, seconds, ran = Stall(LoopSample(9, 0.0, sleeps=sleeps)), 0.0, 0.0
    while not stall.hangs(LIMITS):
        ran += 0.0 if sleeps else 0.1
        stall = stall.after(LoopSample(9, ran, sleeps=sleeps), 0.5)
        seconds += 0.5
    assert seconds == (LIMITS.idle if sleeps else LIMITS.busy)


@given(st.lists(st.tuples(st.floats(0.0, 1.0), st.booleans(), st.booleans()), max_size=200))
def test_a_loop_that_waits_for_working_threads_counts_as_busy(
    looks: list[tuple[float, bool, bool]],
) -> None:
    """The limit for sleeping loops skips looks at which another thread, or a called service,
    worked. Later looks count again.
    """
    stall, idle_seconds, ran = Stall(LoopSample(0, 0.0, sleeps=True)), 0.0, 0.0
    for passed, held_up, runs in looks:
        ran += 0.1 if runs else 0.0
        stall = stall.after(LoopSample(0, ran, sleeps=True, held_up=held_up), passed)
        idle_seconds = 0.0 if runs else idle_seconds + (0.0 if held_up else passed)
        assert stall.idle == pytest.approx(idle_seconds)
        assert stall.hangs(LIMITS) is (stall.idle >= LIMITS.idle or stall.seconds >= LIMITS.busy)


@given(st.lists(PASSED, max_size=5))
def test_a_few_late_looks_end_no_process(pauses: list[float]) -> None:
    stall = Stall(LoopSample(0, 0.0, sleeps=True))
    for passed in pauses:
        stall = stall.after(LoopSample(0, 0.0, sleeps=True), passed)
    assert not stall.hangs(LIMITS), "the process itself stood still, or the host was suspended"


WATCHED = """
import sys, threading, time
from sluice_ops.process import watchdog
from sluice_ops.process.watchdog import LoopLimits, Watchdog
watchdog.EVERY_SECONDS = 0.02
limits = LoopLimits(busy=2.0, idle=0.5)
give_up = lambda: print("gives up", flush=True)
dog = Watchdog("loop of a test", limits, ("serving",), ("called",), give_up)
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
            (
                "scope = {'__name__': 'serving.deep', 'time': time}\n"
                "exec('def wait(): time.sleep(1.2)', scope)\nscope['wait']()"
            ),
            0,
        ),
        (
            (
                "scope = {'__name__': 'called', 'time': time}\n"
                "exec('def wait(seconds): time.sleep(seconds)', scope)\nscope['wait'](1.2)"
            ),
            0,
        ),
        (
            (
                "scope = {'__name__': 'called', 'time': time}\n"
                "exec('def wait(seconds): time.sleep(seconds)', scope)\nscope['wait'](20)"
            ),
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
    completed = subprocess.run(
        [sys.executable, "-c", WATCHED.format(body=body)],
        capture_output=True,
        text=True,
        check=False,
        timeout=25,
    )
    assert completed.returncode == code, completed.stderr
    assert ("goes on" in completed.stdout) is (code == 0)
    if code == HUNG:
        assert "gives up" in completed.stdout
        last = completed.stderr.splitlines()[-1]
        assert re.match(
            r"hung since \d\d:\d\d:\d\d UTC: "
            "the working loop of the loop of a test has made no progress for ",
            last,
        )
        assert "Thread" in completed.stderr, "the log lacks the stack of each thread"


def test_an_ended_thread_is_in_no_module() -> None:
    assert not is_in(None, ("kazoo",))


def test_a_stopped_watchdog_ends_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EVERY_SECONDS", 0.01)
    dog = Watchdog("test", LoopLimits(busy=0.2, idle=0.2))
    loop = threading.Thread(target=dog.start)
    loop.start()
    dog.stop()
    loop.join()
    time.sleep(0.5)
