"""A running tier with state is moved, paused and killed while records flow; its output is the one
computed from the input.
"""

import json
from datetime import UTC, datetime

import pytest

from sluice_ops.model.incarnation import State
from tests.integration.sluice.state_feed import Feed, assert_windows, ends, feeding, records
from tests.lab import Lab, until

PIPELINE_MODULE = "tests.integration.sluice.stateful_pipeline"
TIER = "by-window"
RATE = 100
LARGEST_GAP = 10
"""The longest time between the last batch of the old incarnation and the first of the new one, on a
busy machine. Unit: seconds.
"""

pytestmark = [pytest.mark.timeout(1500), pytest.mark.long]


def test_moves_and_kills_lose_nothing_and_count_nothing_twice(lab: Lab) -> None:
    feed = Feed(lab)
    with feeding(feed, RATE):
        _move_and_kill(lab)
    assert_windows(lab, feed)
    _assert_changes(lab)
    folder = lab.home / "checkpoints" / TIER
    until(
        "checkpoints of earlier incarnations are deleted",
        lambda: {run.name for run in folder.iterdir()} == {"internal", "5.0"},
    )


def _assert_changes(lab: Lab) -> None:
    """Assert that the stream has each change of the table once, and in order."""
    expected = {
        (who, since.isoformat()): hits
        for who, since, hits in lab.query("select who, since, hits from windows")
    }

    def last() -> dict[tuple[str, str], int]:
        return {key: hits[-1] for key, hits in changes.items()}

    def all_came() -> bool:
        changes.clear()
        for message in records(lab, "window-changes"):
            row = json.loads(message.value())
            since = datetime.fromisoformat(row["since"]).astimezone(UTC).isoformat()
            changes.setdefault((row["who"], since), []).append(row["hits"])
        return last().keys() == expected.keys() and last() == expected

    changes: dict[tuple[str, str], list[int]] = {}
    until("the stream has the table's last changes", all_came, 60)
    assert {key: hits for key, hits in changes.items() if hits != sorted(set(hits))} == {}


def _batches(lab: Lab) -> int:
    return int(lab.query("select count(*) from ledger")[0][0])


def _move_and_kill(lab: Lab) -> None:
    lab.start_owner(TIER, 1, "h1")
    until("the tier counts", lambda: ends(lab, TIER))

    # The tier is moved, with hardly a moment without a batch, and takes the state of its hooks
    # along.
    lab.cut(TIER, 1, 2, "h2")
    lab.wait_caught_up(TIER, 2)
    lab.set_owner(TIER, 2)
    stopped = lab.wait_for(TIER, 1, State.STOPPED).stopped_at
    assert stopped is not None
    assert stopped.internal is not None
    assert "hook: pause" in lab.log(TIER, 1)
    internal_state = f"left by {lab.driver(TIER, 1).pid}"
    until("the new driver has the state of the old one's hooks", lambda: internal_state in lab.log(TIER, 2))
    ((gap,),) = lab.query(
        "select extract(epoch from min(at) filter (where incarnation = 2) - max(at) filter (where "
        "incarnation = 1)) from ledger"
    )
    assert 0 < gap < LARGEST_GAP
    lab.stop(TIER, 1)

    # The driver is killed, and a cold one continues from its checkpoint.
    lab.driver(TIER, 2).kill()
    lab.stop(TIER, 2)
    lab.start_owner(TIER, 3, "h3")
    lab.wait_for(TIER, 3, State.RUNNING)
    lab.wait_caught_up(TIER, 3)
    assert "begins from a checkpoint" in lab.log(TIER, 3)
    _assert_resumed_first(lab, 3, internal_state)

    # The executor is killed: the driver continues with the executor that its slot restarts.
    lab.kill_executor(TIER, 3)
    until("the driver has lost its executor", lambda: "Lost executor" in lab.log(TIER, 3))
    batch = _batches(lab)
    until("the tier counts again", lambda: _batches(lab) > batch + 1)

    # The tier is paused, and continues as another incarnation, whose driver does the work itself.
    lab.set_owner(TIER, 3, paused=True)
    lab.wait_for(TIER, 3, State.PAUSED)
    lab.set_owner(TIER, 3, stopped=True)
    lab.wait_for(TIER, 3, State.STOPPED)
    internal_state = f"left by {lab.driver(TIER, 3).pid}"
    lab.stop(TIER, 3)
    lab.start_owner(TIER, 4, "h1", slots=0)
    lab.wait_for(TIER, 4, State.RUNNING)
    _assert_resumed_first(lab, 4, internal_state)

    # The owner dies beside a hot standby, whose hook is not called again.
    lab.start_standby(TIER, 4, 5, "h2", hot=True)
    calls = lab.log(TIER, 5).count("hook: resumed")
    lab.driver(TIER, 4).kill()
    lab.set_owner(TIER, 5)
    lab.stop(TIER, 4)
    batch = _batches(lab)
    until("the standby counts", lambda: _batches(lab) > batch + 3)
    assert lab.log(TIER, 5).count("hook: resumed") == calls == 1


def _assert_resumed_first(lab: Lab, number: int, internal_state: str) -> None:
    """Assert that the hook got the state of the last orderly stop before the first new record."""
    log = lab.log(TIER, number)
    resumed, runs = log.index("hook: resumed"), log.index("the query runs")
    assert internal_state in log[resumed:runs]
