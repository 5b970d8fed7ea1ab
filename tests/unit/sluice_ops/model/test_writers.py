"""Who may write a tier's streams, whatever is cut off, stands still, comes late or is lost: no run writes on beside its successor."""

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
    """One incarnation: its driver with what it has read of ZooKeeper, and its executor with what it has heard of the topic."""

    def __init__(self, number, tree=0):
        self.tree = tree
        self.number, self.record = number, OwnerRecord()
        self.reaches, self.awake, self.hears = True, True, True
        self.claim = self.pending = self.confirmed = None
        self.writes = False


class World:
    """A tier's owner record, its control topic, and all runs that were ever begun."""

    def __init__(self):
        self.now, self.record, self.topic, self.runs = 0.0, OwnerRecord(owner=1, epoch=100), [], [Run(1)]
        self.number, self.tree, self.lost = 1, 0, None
        """Who loses both knows of no run that was there before."""

    def heard(self):
        return max((value for _, value in self.topic), key=lambda each: each.order, default=None)

    def write(self, **changes):
        self.record = self.record.model_copy(update={**changes, "epoch": self.record.epoch + 1})

    def begin(self):
        self.number += 1
        self.runs.append(Run(self.number, self.tree))
        return self.number

    # -- what happens

    def happens(self, step, which):
        run = self.runs[which % len(self.runs)]
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
            case "lose tree" if (
                self.lost is None
            ):  # all is decided anew there, from small epochs and numbers on
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
        """Follow the topic, and write as long as that is allowed."""
        if not run.writes:
            return
        if run.hears:
            run.confirmed = self.now
            if any(value.end(run.claim, run.number) for _, value in self.topic):
                run.writes = False
                return
        if run.confirmed is not None and self.now - run.confirmed < VALID_SECONDS:
            self.judge(run)

    def judge(self, run):
        """A record is put."""
        over = [at for at, value in self.topic if value.end(run.claim, run.number)]
        assert not over or self.now - min(over) < VALID_SECONDS

    def reached(self, run):
        return run.reaches and run.tree == self.tree

    def driver(self, run):
        if run.pending is not None:  # it may have stood still for long before
            self.topic.append((self.now, run.pending))
            run.claim, run.pending, run.writes, run.confirmed = run.pending, None, True, None
            return
        if self.reached(run):
            run.record = self.record
        runs = directive(run.record, run.number) is Directive.RUN
        if not runs:
            run.writes = False
        elif not run.writes:
            run.pending = self.claimed(run)
        elif run.record.owner == run.number:  # it repeats what it has said
            mine = writers_of(run.record, run.claim.term)
            heard = self.heard()
            if heard is None or (mine.order > heard.order and mine.members != heard.members):
                self.topic.append((self.now, mine))
            elif disagrees(heard, mine) and self.reached(run):
                run.pending = claim(heard, self.record, term=run.claim.term, fresh=True)

    def claimed(self, run):
        heard, term = self.heard(), None if run.claim is None else run.claim.term
        mine = claim(heard, run.record, term=term, fresh=False)
        if (mine is None or mine == heard) and self.reached(run):
            mine = claim(heard, self.record, term=term, fresh=True)
        return mine


NUMBER_OF_TWO_TREES = [("go", 0), ("lose tree", 0), ("freeze", 0), ("go", 0), ("freeze", 1), ("deafen", 1)]
"""Two runs of number 1 stood still before their first claim, one of each tree: the later tree's must not go by the earlier one's value."""

LATE_CLAIM = [("cut over", 0), ("cut off", 1), ("go", 0), ("lose tree", 0), ("freeze", 0)]
"""A run of the earlier tree puts, after it stood still, a claim with the number of the later tree's owner: that has to notice."""


@settings(max_examples=500, deadline=None)
@example(NUMBER_OF_TWO_TREES)
@example(LATE_CLAIM)
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 3)), max_size=60))
def test_no_run_writes_on_beside_its_successor_and_the_owner_does(steps):
    world = World()
    for step, which in steps:
        world.happens(step, which)
    owner = world.begin()
    world.write(owner=owner, next=None, phase=Phase.STEADY)
    world.pass_time(3)
    assert world.runs[-1].writes, "whoever ZooKeeper names begins, whatever the topic had"
    for run in world.runs[:-1]:
        run.awake = run.hears = True
    world.pass_time(5)
    assert [run for run in world.runs if run.writes] == world.runs[-1:], "and nobody else writes on"


RECORD = OwnerRecord(owner=4, next=5, epoch=12, phase=Phase.CUT)


def test_whoever_is_or_may_be_told_to_run_is_a_writer():
    assert writers_of(RECORD.model_copy(update={"standby": 3})) == Writers(epoch=12, members=(3, 4, 5))


def test_a_right_ends_with_a_later_value_that_leaves_it_out():
    mine = Writers(epoch=10, members=(4,))
    assert not Writers(epoch=9, members=(3,)).end(mine, 4), "an earlier one that comes late"
    assert not Writers(epoch=12, members=(4, 5)).end(mine, 4)
    assert Writers(epoch=12, members=(5,)).end(mine, 4)
    assert Writers(term=1, epoch=1, members=(4,)).end(mine, 4), "the number of another tree's incarnation"


@pytest.mark.parametrize(
    ("heard", "term", "fresh", "expected"),
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
def test_a_claim_goes_by_the_topic_and_by_zookeeper_where_it_answers(heard, term, fresh, expected):
    assert claim(heard, RECORD, term=term, fresh=fresh) == expected
