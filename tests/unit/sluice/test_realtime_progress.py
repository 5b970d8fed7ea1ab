"""The position before which all records are out, derived from what tasks have read: never too far,
whatever ends, stands still or is slow.
"""

import math
from dataclasses import dataclass, replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sluice.driver.positions.realtime_progress import (
    BROKEN_SECONDS,
    EVERY_SECONDS,
    HEARD_SECONDS,
    LATER_SECONDS,
    RealtimeProgress,
    Task,
)
from sluice.kafka.positions import GIVE_UP_MS

LOOK = 0.25
HEARTBEAT = 2.0
GIVE_UP = GIVE_UP_MS / 1000
UNTIL = 3 * EVERY_SECONDS
AT_MOST = EVERY_SECONDS + LATER_SECONDS + 2 * HEARD_SECONDS + 5
AWAKE = 1.0
"""Seconds that a stalled executor may work on before it notices the missed heartbeats and ends."""


@dataclass(frozen=True)
class Executor:
    """An executor that reads a partition from offset 100 at a fixed pace until it stalls.

    It ends at once, or when it continues.
    """

    period: float
    """Seconds between two records."""
    slow: float
    """Seconds from handing a record over until it is out."""
    stops: float = math.inf
    stands: float = math.inf
    """Length of the stall in seconds; 0.0 means that the executor ends at once."""
    name: str = ""

    @property
    def ends(self):
        return self.stops + self.stands + (AWAKE if self.stands else 0.0)

    def read(self, now):
        """Return the number of records that the executor has read."""
        awake = max(0.0, min(now, self.ends) - self.stops - self.stands) if self.stands < math.inf else 0.0
        return int((min(now, self.stops) + 5 * awake) / self.period)

    def out(self, now):
        """Return the first offset that is not out.

        A record may be handed over only when the next one is read.
        """
        return 100 + max(0, int((min(now, self.stops) - self.slow) / self.period) - 1)

    def heard(self, now):
        """Return the number of records in the last heartbeat.

        An executor that continues after a stall sends a heartbeat first.
        """
        last = math.floor(now / HEARTBEAT) * HEARTBEAT
        if last >= self.stops:
            last = now if now >= self.stops + self.stands else math.floor(self.stops / HEARTBEAT) * HEARTBEAT
        return self.read(last)


SOON = st.sampled_from([EVERY_SECONDS + quarters / 4 for quarters in range(-8, 130)])
"""Times around the first look."""
executors = st.builds(
    Executor,
    period=st.sampled_from((0.05, 1.0, 12.0, 1000.0)),
    slow=st.sampled_from((0.0, GIVE_UP - 0.01)),
    stops=st.one_of(st.just(math.inf), SOON),
    stands=st.sampled_from(
        (0.0, 5.0, *(LATER_SECONDS + looks * HEARD_SECONDS - 0.5 for looks in (1, 2)), math.inf)
    ),
)
pauses = st.lists(
    st.tuples(SOON, st.sampled_from((0.5, 3.0, GIVE_UP + 1.5, LATER_SECONDS - 0.5))), max_size=2
)


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def run(working, pauses=()):
    """Yield time, reported positions and true positions at each look.

    In `pauses`, the driver and its heartbeats stand still.
    """
    clock, heard_until = Clock(), 0.0
    progress = RealtimeProgress(clock)

    def tasks():
        if any(heard_until > executor.ends + LOOK for executor in working):
            return []
        return [
            Task(number, executor.name, partition(number), 100, executor.heard(heard_until))
            for number, executor in enumerate(working)
        ]

    while clock.now < UNTIL:
        clock.now += LOOK
        pause = sum(length for at, length in pauses if clock.now - LOOK <= at < clock.now)
        if not pause:
            heard_until = clock.now - LOOK  # heartbeats that arrived during a stall are heard a little later
        clock.now += pause
        out = {}
        for number, executor in enumerate(working):
            out[partition(number)] = min(executor.out(clock.now), out.get(partition(number), math.inf))
        yield clock.now, progress.newly_complete(tasks), out


def partition(number):
    """Return the partition that a task reads. Every second task reads the same one."""
    return f"numbers/{number % 2}"


def named(drawn):
    return [replace(executor, name=str(number)) for number, executor in enumerate(drawn)]


@given(st.lists(executors, min_size=1, max_size=3), pauses)
@example([Executor(0.05, GIVE_UP - 0.01, EVERY_SECONDS + 5)], [(EVERY_SECONDS + 0.5, LATER_SECONDS)])
@example([Executor(0.05, GIVE_UP - 0.01, EVERY_SECONDS + 0.5, LATER_SECONDS + HEARD_SECONDS - 0.75)], [])
@example([Executor(0.05, GIVE_UP - 0.01, EVERY_SECONDS + 0.5, LATER_SECONDS + 2 * HEARD_SECONDS - 0.75)], [])
@settings(max_examples=500)
def test_reported_positions_are_out_and_never_decrease(drawn, pauses):
    before = {}
    for now, reported, out in run(named(drawn), pauses):
        assert all(at <= out[name] for name, at in reported.items()), (now, reported, out)
        assert not reported or all(reported[name] >= at for name, at in before.items()), (
            now,
            reported,
            before,
        )
        before = reported or before


@given(st.lists(executors, min_size=1, max_size=3))
def test_without_faults_all_records_read_a_while_ago_are_reported(drawn):
    working = [
        replace(executor, period=min(executor.period, 1.0), stops=math.inf) for executor in named(drawn)
    ]
    last, reported = 0.0, {}
    for now, news, _ in run(working):
        if news:
            assert now - last < AT_MOST
            last, reported = now, news
            assert all(
                reported[partition(number)]
                >= 99 + min(executor.heard(now - AT_MOST / 2) for executor in working)
                for number in range(len(working))
            )
    assert last > UNTIL - AT_MOST


def test_a_quiet_partition_reports_its_position_and_an_idle_executor_none():
    clock, reported = Clock(), {}
    progress = RealtimeProgress(clock)
    quiet, idle = Task(2, "a", "numbers/1", 500, 40), Task(3, "b", "numbers/2", 0, 7)
    while not reported:
        clock.now += LOOK
        reported = progress.newly_complete(
            lambda: [Task(1, "a", "numbers/0", 0, int(clock.now * 100)), quiet, idle]
        )
    assert reported == {"numbers/0": EVERY_SECONDS * 100 - 1, "numbers/1": 539, "numbers/2": 0}


def test_tasks_that_were_replaced_report_nothing():
    clock, reported = Clock(), []
    progress = RealtimeProgress(clock)
    while clock.now < 2 * EVERY_SECONDS:
        clock.now += LOOK
        number = int(clock.now // (LATER_SECONDS / 2))
        reported.append(
            progress.newly_complete(
                lambda number=number: [Task(number, "a", "numbers/0", 0, int(clock.now * 100))]
            )
        )
    assert not any(reported)


@pytest.mark.parametrize(("pause", "anew"), [(BROKEN_SECONDS + 0.1, True), (BROKEN_SECONDS - 0.1, False)])
def test_after_a_long_pause_between_looks_the_progress_starts_anew(pause, anew):
    clock, asked_at = Clock(), []
    progress = RealtimeProgress(clock)

    def tasks():
        asked_at.append(clock.now)
        return [Task(1, "a", "numbers/0", 0, int(clock.now * 100))]

    for clock.now in (EVERY_SECONDS, EVERY_SECONDS + pause, EVERY_SECONDS + pause + 0.1):
        assert progress.newly_complete(tasks) == {}
    assert asked_at == [EVERY_SECONDS, EVERY_SECONDS + pause][: 1 + anew]


def test_positions_from_other_sources_are_merged_and_reported_once():
    progress = RealtimeProgress(Clock())
    assert progress.news({}) == {}
    assert progress.news({"numbers/0": 5}) == {"numbers/0": 5}
    assert progress.news({"numbers/0": 4, "numbers/1": 1}) == {"numbers/0": 5, "numbers/1": 1}
    assert progress.news({"numbers/0": 5}) == {}
