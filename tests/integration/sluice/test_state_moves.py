"""A tier that holds state, as it is run: moved, held and killed while records flow; what it says is
what the input says.
"""

import pytest

from sluice_ops.model.incarnation import State
from tests.integration.sluice.given import Feed, assert_windows, ends, feeding
from tests.lab import Lab, until

PIPELINE_MODULE = "tests.integration.sluice.holding"
TIER = "by-window"
RATE = 100
LARGEST_GAP = 10
"""Between the last batch of the one and the first of the other, on a machine that does much else.

Unit: seconds.
"""

pytestmark = [pytest.mark.timeout(1500), pytest.mark.long]


def test_moves_and_kills_lose_nothing_and_count_nothing_twice(lab: Lab) -> None:
    feed = Feed(lab)
    with feeding(feed, RATE):
        _move_and_kill(lab)
    assert_windows(lab, feed)
    folder = lab.home / "checkpoints" / TIER
    until(
        "what others have left is gone", lambda: {run.name for run in folder.iterdir()} == {"internal", "4.0"}
    )


def _batches(lab: Lab) -> int:
    return int(lab.query("select count(*) from ledger")[0][0])


def _move_and_kill(lab: Lab) -> None:
    lab.start_owner(TIER, 1, "h1")
    until("it counts", lambda: ends(lab, TIER))

    # it moves, hardly a moment without a batch, and takes along what its own hooks have left
    lab.cut(TIER, 1, 2, "h2")
    lab.wait_caught_up(TIER, 2)
    lab.set_owner(TIER, 2)
    stopped = lab.wait_for(TIER, 1, State.STOPPED).stopped_at
    assert stopped is not None
    assert stopped.internal is not None
    assert "hook: pause" in lab.log(TIER, 1)
    left = f"left by {lab.driver(TIER, 1).pid}"
    until("it was told what the one before has left", lambda: left in lab.log(TIER, 2))
    ((gap,),) = lab.query(
        "select extract(epoch from min(at) filter (where incarnation = 2) - max(at) filter (where "
        "incarnation = 1)) from ledger"
    )
    assert 0 < gap < LARGEST_GAP
    lab.stop(TIER, 1)

    # its driver is killed, and a cold one goes on from its checkpoint
    lab.driver(TIER, 2).kill()
    lab.stop(TIER, 2)
    lab.start_owner(TIER, 3, "h3")
    lab.wait_for(TIER, 3, State.RUNNING)
    lab.wait_caught_up(TIER, 3)
    assert "begins from a checkpoint" in lab.log(TIER, 3)

    # its executor is killed: it goes on with the one that its slot starts again
    lab.kill_executor(TIER, 3)
    until("the executor is missed", lambda: "Lost executor" in lab.log(TIER, 3))
    batch = _batches(lab)
    until("it counts again", lambda: _batches(lab) > batch + 1)

    # it is held, and goes on as another incarnation
    lab.set_owner(TIER, 3, paused=True)
    lab.wait_for(TIER, 3, State.PAUSED)
    lab.set_owner(TIER, 3, stopped=True)
    lab.wait_for(TIER, 3, State.STOPPED)
    lab.stop(TIER, 3)
    lab.start_owner(TIER, 4, "h1")
    lab.wait_for(TIER, 4, State.RUNNING)
