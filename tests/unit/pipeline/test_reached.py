"""Up to where all is out, by what tasks have read: never too far, whatever ends, stands still, or is slow."""

import math
from dataclasses import dataclass, replace

from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.driver.positions import GIVE_UP_MS
from pipeline.driver.reached import BROKEN_SECONDS, EVERY_SECONDS, LATER_SECONDS, Reached, Task

LOOK = 0.25
HEARTBEAT = 2.0
GIVE_UP = GIVE_UP_MS / 1000
UNTIL = 3 * EVERY_SECONDS
AT_MOST = EVERY_SECONDS + LATER_SECONDS + 10


@dataclass(frozen=True)
class Executor:
    """One that reads a partition from offset 100 on, every so often, until it ends or stands still."""

    name: str
    period: float
    """Between two records."""
    slow: float
    """So long after it was handed over, a record is out."""
    stops: float
    """From then on it does nothing more."""
    ends: bool
    """Whether it ends then, and everybody sees; else it stands still, and nobody does."""

    def read(self, now):
        """Return how many it has read."""
        return int(min(now, self.stops) / self.period)

    def out(self, now):
        """Return the first offset that is not out: a record is handed over as late as when the next one is read."""
        return 100 + max(0, int((min(now, self.stops) - self.slow) / self.period) - 1)

    def heard(self, now):
        """Return what its last heartbeat has told."""
        return self.read(math.floor(min(now, self.stops) / HEARTBEAT) * HEARTBEAT)


SOON = st.sampled_from([EVERY_SECONDS + quarters / 4 for quarters in range(-8, 80)])
"""Around the first time that it looks."""
executors = st.builds(
    Executor,
    name=st.just(""),
    period=st.sampled_from((0.05, 1.0, 12.0, 1000.0)),
    slow=st.sampled_from((0.0, GIVE_UP - 0.01)),
    stops=st.one_of(st.just(math.inf), SOON),
    ends=st.booleans(),
)
pauses = st.lists(st.tuples(SOON, st.sampled_from((0.5, 3.0, 9.5, 13.5))), max_size=2)


def run(working, pauses=()):
    """Yield each time, what is told then, and up to where all is out; the driver, and what it hears, stands still in `pauses`."""
    reached, now, heard_until = Reached(0.0), 0.0, 0.0

    def tasks():
        if any(each.ends and heard_until > each.stops + LOOK for each in working):
            return []
        return [Task(number, each.name, partition(number), 100, each.heard(heard_until)) for number, each in enumerate(working)]

    while now < UNTIL:
        now += LOOK
        pause = sum(length for at, length in pauses if now - LOOK <= at < now)
        if not pause:
            heard_until = now - LOOK  # what has come while it stood still is heard a little later
        now += pause
        out = {}
        for number, each in enumerate(working):
            out[partition(number)] = min(each.out(now), out.get(partition(number), math.inf))
        yield now, reached.look(now, tasks), out


def partition(number):
    """Name what a task reads: every other one the same."""
    return f"numbers/{number % 2}"


def named(found):
    return [replace(each, name=str(number)) for number, each in enumerate(found)]


@given(st.lists(executors, min_size=1, max_size=3), pauses)
@example([Executor("", 0.05, GIVE_UP - 0.01, EVERY_SECONDS + 5, ends=False)], [(EVERY_SECONDS + 0.5, LATER_SECONDS)])
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
                told[partition(number)] >= 99 + min(each.heard(now - AT_MOST / 2) for each in working) for number in range(len(working))
            )
    assert last > UNTIL - AT_MOST


def test_a_quiet_partition_beside_a_busy_one_is_told_and_of_an_executor_that_reads_nothing_nothing():
    busy, quiet = Task(1, "a", "numbers/0", 0, 0), Task(2, "a", "numbers/1", 500, 40)
    other = Task(3, "b", "numbers/2", 0, 7)
    reached, now, told = Reached(0.0), 0.0, {}
    while not told:
        now += LOOK
        tasks = [Task(1, "a", busy.partition, 0, int(now * 100)), quiet, other]
        told = reached.look(now, lambda tasks=tasks: tasks)
    assert told == {"numbers/0": EVERY_SECONDS * 100 - 1, "numbers/1": 539, "numbers/2": 0}


def test_of_tasks_that_others_have_followed_nothing_is_told():
    reached, now, told = Reached(0.0), 0.0, []
    while now < 2 * EVERY_SECONDS:
        now += LOOK
        number = int(now // (LATER_SECONDS / 2))
        told.append(reached.look(now, lambda number=number, now=now: [Task(number, "a", "numbers/0", 0, int(now * 100))]))
    assert not any(told)


def test_who_has_not_looked_for_a_while_begins_to_look_anew():
    asked = []

    def tasks():
        asked.append(now)
        return [Task(1, "a", "numbers/0", 0, int(now * 100))]

    reached = Reached(0.0)
    for now in (EVERY_SECONDS, EVERY_SECONDS + BROKEN_SECONDS + 0.1, EVERY_SECONDS + BROKEN_SECONDS + 0.2):
        assert reached.look(now, tasks) == {}
    assert asked == [EVERY_SECONDS, EVERY_SECONDS + BROKEN_SECONDS + 0.1]
