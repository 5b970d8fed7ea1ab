"""Up to where all is out, by what tasks have read: never too far, whatever ends, stands still, or is slow."""

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
"""So long one that stood still may work on, until it sees what it has missed and ends."""


@dataclass(frozen=True)
class Executor:
    """One that reads a partition from offset 100 on, every so often, until it stands still; or ends, then or when it goes on."""

    period: float
    """Between two records."""
    slow: float
    """So long after it was handed over, a record is out."""
    stops: float = math.inf
    stands: float = math.inf
    """For how long; where it ends at once, not at all."""
    name: str = ""

    @property
    def ends(self):
        return self.stops + self.stands + (AWAKE if self.stands else 0.0)

    def read(self, now):
        """Return how many it has read."""
        awake = max(0.0, min(now, self.ends) - self.stops - self.stands) if self.stands < math.inf else 0.0
        return int((min(now, self.stops) + 5 * awake) / self.period)

    def out(self, now):
        """Return the first offset that is not out: a record is handed over as late as when the next one is read."""
        return 100 + max(0, int((min(now, self.stops) - self.slow) / self.period) - 1)

    def heard(self, now):
        """Return what its last heartbeat has told; the first thing that it does when it goes on is to send one."""
        last = math.floor(now / HEARTBEAT) * HEARTBEAT
        if last >= self.stops:
            last = now if now >= self.stops + self.stands else math.floor(self.stops / HEARTBEAT) * HEARTBEAT
        return self.read(last)


SOON = st.sampled_from([EVERY_SECONDS + quarters / 4 for quarters in range(-8, 100)])
"""Around the first time that it looks."""
executors = st.builds(
    Executor,
    period=st.sampled_from((0.05, 1.0, 12.0, 1000.0)),
    slow=st.sampled_from((0.0, GIVE_UP - 0.01)),
    stops=st.one_of(st.just(math.inf), SOON),
    stands=st.sampled_from((0.0, 5.0, 18.5, 23.5, math.inf)),
)
pauses = st.lists(st.tuples(SOON, st.sampled_from((0.5, 3.0, 9.5, 13.5))), max_size=2)


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def run(working, pauses=()):
    """Yield each time, what is told then, and up to where all is out; the driver, and what it hears, stands still in `pauses`."""
    clock, heard_until = Clock(), 0.0
    reached = RealtimeProgress(clock)

    def tasks():
        if any(heard_until > each.ends + LOOK for each in working):
            return []
        return [
            Task(number, each.name, partition(number), 100, each.heard(heard_until))
            for number, each in enumerate(working)
        ]

    while clock.now < UNTIL:
        clock.now += LOOK
        pause = sum(length for at, length in pauses if clock.now - LOOK <= at < clock.now)
        if not pause:
            heard_until = clock.now - LOOK  # what has come while it stood still is heard a little later
        clock.now += pause
        out = {}
        for number, each in enumerate(working):
            out[partition(number)] = min(each.out(clock.now), out.get(partition(number), math.inf))
        yield clock.now, reached.look(tasks), out


def partition(number):
    """Name what a task reads: every other one the same."""
    return f"numbers/{number % 2}"


def named(found):
    return [replace(each, name=str(number)) for number, each in enumerate(found)]


@given(st.lists(executors, min_size=1, max_size=3), pauses)
@example([Executor(0.05, GIVE_UP - 0.01, EVERY_SECONDS + 5)], [(EVERY_SECONDS + 0.5, LATER_SECONDS)])
@example([Executor(0.05, GIVE_UP - 0.01, EVERY_SECONDS + 0.5, LATER_SECONDS + HEARD_SECONDS - 0.75)], [])
@example([Executor(0.05, GIVE_UP - 0.01, EVERY_SECONDS + 0.5, LATER_SECONDS + 2 * HEARD_SECONDS - 0.75)], [])
@settings(max_examples=500)
def test_what_is_told_is_out_and_it_is_never_told_less(found, pauses):
    before = {}
    for now, told, out in run(named(found), pauses):
        assert all(at <= out[name] for name, at in told.items()), (now, told, out)
        assert not told or all(told[name] >= at for name, at in before.items()), (now, told, before)
        before = told or before


@given(st.lists(executors, min_size=1, max_size=3))
def test_where_nothing_goes_wrong_all_that_was_read_a_while_ago_is_told(found):
    working = [replace(each, period=min(each.period, 1.0), stops=math.inf) for each in named(found)]
    last, told = 0.0, {}
    for now, news, _ in run(working):
        if news:
            assert now - last < AT_MOST
            last, told = now, news
            assert all(
                told[partition(number)] >= 99 + min(each.heard(now - AT_MOST / 2) for each in working)
                for number in range(len(working))
            )
    assert last > UNTIL - AT_MOST


def test_a_quiet_partition_reports_its_position_and_an_idle_executor_none():
    clock, told = Clock(), {}
    reached = RealtimeProgress(clock)
    quiet, other = Task(2, "a", "numbers/1", 500, 40), Task(3, "b", "numbers/2", 0, 7)
    while not told:
        clock.now += LOOK
        told = reached.look(lambda: [Task(1, "a", "numbers/0", 0, int(clock.now * 100)), quiet, other])
    assert told == {"numbers/0": EVERY_SECONDS * 100 - 1, "numbers/1": 539, "numbers/2": 0}


def test_of_tasks_that_others_have_followed_nothing_is_told():
    clock, told = Clock(), []
    reached = RealtimeProgress(clock)
    while clock.now < 2 * EVERY_SECONDS:
        clock.now += LOOK
        number = int(clock.now // (LATER_SECONDS / 2))
        told.append(
            reached.look(lambda number=number: [Task(number, "a", "numbers/0", 0, int(clock.now * 100))])
        )
    assert not any(told)


@pytest.mark.parametrize(("stood", "anew"), [(BROKEN_SECONDS + 0.1, True), (BROKEN_SECONDS - 0.1, False)])
def test_who_has_not_looked_for_a_while_begins_to_look_anew(stood, anew):
    clock, asked = Clock(), []
    reached = RealtimeProgress(clock)

    def tasks():
        asked.append(clock.now)
        return [Task(1, "a", "numbers/0", 0, int(clock.now * 100))]

    for clock.now in (EVERY_SECONDS, EVERY_SECONDS + stood, EVERY_SECONDS + stood + 0.1):
        assert reached.look(tasks) == {}
    assert asked == [EVERY_SECONDS, EVERY_SECONDS + stood][: 1 + anew]


def test_what_was_told_otherwise_is_told_with_it_and_nothing_twice():
    reached = RealtimeProgress(Clock())
    assert reached.news({}) == {}
    assert reached.news({"numbers/0": 5}) == {"numbers/0": 5}
    assert reached.news({"numbers/0": 4, "numbers/1": 1}) == {"numbers/0": 5, "numbers/1": 1}
    assert reached.news({"numbers/0": 5}) == {}
