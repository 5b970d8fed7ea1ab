"""The right to write a tier's streams: no incarnation keeps writing beside its successor.

Hypothesis cuts off, freezes and delays incarnations, and loses the topic or ZooKeeper's data.
"""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sluice_ops.model.incarnation import Directive, OwnerRecord, Phase, directive
from sluice_ops.model.stream_writers import VALID_SECONDS, Writers, claim, disagrees, writers_of

LINKS = {
    "cut off": {"reaches": False},
    "reach": {"reaches": True},
    "freeze": {"awake": False},
    "thaw": {"awake": True},
    "deafen": {"reaches": False, "hears": False},
    "hear": {"hears": True},
}
STEPS = ("go", "go", "go", "wait", "move", "cut over", "call off", "flip", "lose tree", "lose topic", *LINKS)


class Run:
    """One incarnation: its driver's last read of ZooKeeper, and its executor's last read of the
    topic.
    """

    def __init__(self, number, tree=0):
        self.tree = tree
        self.number, self.record = number, OwnerRecord()
        self.reaches, self.awake, self.hears = True, True, True
        self.claim = self.pending = self.confirmed = None
        self.writes = False


class World:
    """A tier's owner record, its control topic, and all incarnations that were ever started."""

    def __init__(self):
        self.now, self.record, self.topic, self.runs = 0.0, OwnerRecord(owner=1, epoch=100), [], [Run(1)]
        self.number, self.tree, self.lost = 1, 0, None
        """The lost one: tree or topic. Without both, no former run would be known."""

    def latest_value(self):
        return max((value for _, value in self.topic), key=lambda value: value.order, default=None)

    def write(self, **changes):
        self.record = self.record.model_copy(update={**changes, "epoch": self.record.epoch + 1})

    def begin(self):
        self.number += 1
        self.runs.append(Run(self.number, self.tree))
        return self.number

    # -- events

    def apply(self, step, index):
        run = self.runs[index % len(self.runs)]
        match step:
            case "go" | "wait":
                self.pass_time(1 if step == "go" else 25)
            case "move":
                self.write(owner=self.begin(), next=None, phase=Phase.STEADY)
            case "cut over" if self.record.next is None:
                self.write(next=self.begin(), phase=Phase.CUT)
            case "call off":
                self.write(next=None, phase=Phase.STEADY)
            case "flip" if self.record.next is not None:
                self.write(owner=self.record.next, next=None, phase=Phase.STEADY)
            # The new tree starts again from small epochs and numbers.
            case "lose tree" if self.lost is None:
                self.lost, self.number, self.tree = "tree", 0, self.tree + 1
                self.record = OwnerRecord(owner=self.begin(), epoch=1)
            case "lose topic" if self.lost != "tree":
                self.lost, self.topic = "topic", []
            case _ if step in LINKS:
                run.__dict__.update(LINKS[step])

    def pass_time(self, seconds):
        for _ in range(seconds):
            self.now += 1
            for run in self.runs:
                if run.awake:
                    self.executor(run)
                    self.driver(run)

    def executor(self, run):
        """Follow the topic, and write while the right to write is valid."""
        if not run.writes:
            return
        if run.hears:
            run.confirmed = self.now
            if any(value.end(run.claim, run.number) for _, value in self.topic):
                run.writes = False
                return
        if run.confirmed is not None and self.now - run.confirmed < VALID_SECONDS:
            self.check_record(run)

    def check_record(self, run):
        """Check that a record may be written now."""
        over = [written_at for written_at, value in self.topic if value.end(run.claim, run.number)]
        assert not over or self.now - min(over) < VALID_SECONDS

    def reads_zookeeper(self, run):
        return run.reaches and run.tree == self.tree

    def driver(self, run):
        if run.pending is not None:  # the driver may have been frozen for long before this write
            self.topic.append((self.now, run.pending))
            run.claim, run.pending, run.writes, run.confirmed = run.pending, None, True, None
            return
        if self.reads_zookeeper(run):
            run.record = self.record
        runs = directive(run.record, run.number) is Directive.RUN
        if not runs:
            run.writes = False
        elif not run.writes:
            run.pending = self.next_claim(run)
        elif run.record.owner == run.number:  # repeats its value
            mine = writers_of(run.record, run.claim.term)
            latest_value = self.latest_value()
            if latest_value is None or (
                mine.order > latest_value.order and mine.members != latest_value.members
            ):
                self.topic.append((self.now, mine))
            elif disagrees(latest_value, mine) and self.reads_zookeeper(run):
                run.pending = claim(latest_value, self.record, term=run.claim.term, fresh=True)

    def next_claim(self, run):
        latest_value, term = self.latest_value(), None if run.claim is None else run.claim.term
        mine = claim(latest_value, run.record, term=term, fresh=False)
        if (mine is None or mine == latest_value) and self.reads_zookeeper(run):
            mine = claim(latest_value, self.record, term=term, fresh=True)
        return mine


NUMBER_OF_TWO_TREES = [("go", 0), ("lose tree", 0), ("freeze", 0), ("go", 0), ("freeze", 1), ("deafen", 1)]
"""The earlier tree's run 1 and the later tree's run 1 froze before their first claim.

The later tree's run must not rely on the earlier one's value.
"""

LATE_CLAIM = [("cut over", 0), ("cut off", 1), ("go", 0), ("lose tree", 0), ("freeze", 0)]
"""A run of the earlier tree thaws and writes a claim with the number of the later tree's owner.

That owner has to notice the claim.
"""


@settings(max_examples=500, deadline=None)
@example(NUMBER_OF_TWO_TREES)
@example(LATE_CLAIM)
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 3)), max_size=60))
def test_no_run_writes_on_beside_its_successor_and_the_owner_does(steps):
    world = World()
    for step, index in steps:
        world.apply(step, index)
    owner = world.begin()
    world.write(owner=owner, next=None, phase=Phase.STEADY)
    world.pass_time(3)
    assert world.runs[-1].writes, "the incarnation that ZooKeeper names writes, whatever the topic held"
    for run in world.runs[:-1]:
        run.awake = run.hears = True
    world.pass_time(5)
    assert [run for run in world.runs if run.writes] == world.runs[-1:], "no other incarnation keeps writing"


RECORD = OwnerRecord(owner=4, next=5, epoch=12, phase=Phase.CUT)


def test_every_incarnation_that_may_be_directed_to_run_is_a_writer():
    assert writers_of(RECORD.model_copy(update={"standby": 3})) == Writers(epoch=12, members=(3, 4, 5))


def test_a_right_ends_with_a_later_value_without_its_incarnation():
    mine = Writers(epoch=10, members=(4,))
    assert not Writers(epoch=9, members=(3,)).end(mine, 4), "a late value with a smaller epoch"
    assert not Writers(epoch=12, members=(4, 5)).end(mine, 4)
    assert Writers(epoch=12, members=(5,)).end(mine, 4)
    assert Writers(term=1, epoch=1, members=(4,)).end(mine, 4), (
        "an incarnation of another tree has the same number"
    )


@pytest.mark.parametrize(
    ("latest_value", "term", "fresh", "expected"),
    [
        (None, None, False, Writers(epoch=12, members=(4, 5))),
        (Writers(epoch=11, members=(4,)), None, False, Writers(epoch=12, members=(4, 5))),
        (Writers(epoch=13, members=(6,)), 0, False, None),
        (Writers(epoch=13, members=(4,)), 0, False, None),
        (Writers(epoch=13, members=(4,)), 0, True, Writers(term=1, epoch=12, members=(4, 5))),
        (Writers(epoch=500, members=(6,)), None, True, Writers(term=1, epoch=12, members=(4, 5))),
        (Writers(term=1, epoch=3, members=(4,)), 0, False, None),
        (Writers(term=1, epoch=3, members=(6,)), 0, True, Writers(term=1, epoch=12, members=(4, 5))),
    ],
    ids=[
        "empty",
        "earlier",
        "over",
        "its number in a later one",
        "of a lost tree that had its number",
        "of a lost tree",
        "after a lost tree",
        "after it, confirmed",
    ],
)
def test_a_claim_follows_the_topic_and_zookeeper_if_it_answers(latest_value, term, fresh, expected):
    assert claim(latest_value, RECORD, term=term, fresh=fresh) == expected
