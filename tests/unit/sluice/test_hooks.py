"""Hooks of a tier, in their order.

`pause` comes before the query's hold, and the internal state is stored after it. The next run gets
this state once.
"""

import json
import time

import pytest

from sluice.api.hooks import Hooks
from sluice.driver.counters import Flow
from sluice.driver.process.heartbeat import Pulse
from sluice.driver.process.life import Life
from sluice.driver.spark.workers import Workers
from sluice.driver.state.hook_state import KEPT, InternalStateError, InternalStates
from sluice_ops.model.incarnation import Directive, Internal, Receipt
from tests.unit.sluice.fake_life import Query, ScriptedFollower


class LoggingHooks(Hooks):
    def __init__(self, log):
        self.log = log
        self.state = b"nothing"

    def pause(self):
        self.log.append("pause")

    def get_internal_state(self):
        self.log.append("asked")
        return self.state

    def resume_execution(self, state):
        self.log.append(f"resumed with {state.decode()}")
        self.state = state


def live(follow, hooks, log, folder):
    assert (
        Life(follow, Query(log), InternalStates(folder, hooks), Flow(), Workers(), Pulse(lambda: None)).live()
        == 0
    )


def test_a_held_tier_resumes_with_its_internal_state(tmp_path):
    log, receipts = [], []
    hooks = LoggingHooks(log)
    hooks.state = b"mine"
    live(
        ScriptedFollower(1, [Directive.RUN, Directive.HOLD, Directive.RUN, Directive.EXIT], receipts),
        hooks,
        log,
        tmp_path,
    )
    assert log == ["run", "pause", "hold", "asked", "resumed with mine", "run", "pause", "hold", "asked"]
    assert [receipt.internal.name for receipt in receipts] == ["1.1", "1.2"]
    assert receipts[0].internal.size == 4


@pytest.mark.parametrize("ahead", [0, 3600, -3600])
def test_a_hot_standby_takes_the_owners_internal_state_once_it_has_stopped(tmp_path, ahead):
    """The clock of the owner's host does not matter."""
    log, receipts = [], [Receipt(positions={"in/0": 1}, at=time.time() + ahead)]
    states = InternalStates(tmp_path, Hooks())
    hooks = LoggingHooks(log)
    follow = ScriptedFollower(2, [], receipts)
    follow.owns = False

    def take_over():
        follow.owns = True
        time.sleep(0.01)
        internal = states.leave(1, b"of the first")
        receipts.append(Receipt(positions={"in/0": 4}, internal=internal, at=time.time() + ahead))

    follow._script = iter([Directive.RUN, take_over, Directive.RUN, Directive.RUN])
    live(follow, hooks, log, tmp_path)
    assert log == ["run", "resumed with of the first", "pause", "hold", "asked"]


def test_a_tier_without_hooks_leaves_its_positions_and_takes_nothing(tmp_path):
    log, receipts = [], [Receipt(positions={}, internal=Internal(name="gone", size=1, sha256=""), at=0)]
    live(ScriptedFollower(3, [Directive.RUN], receipts), Hooks(), log, tmp_path)
    assert log == ["run", "hold"]
    assert json.loads((tmp_path / receipts[1].internal.name).read_bytes()) == {"positions": {"in/0": 5}}


def test_a_damaged_internal_state_is_refused(tmp_path):
    states = InternalStates(tmp_path, LoggingHooks([]))
    internal = states.leave(1, b"whole")
    (tmp_path / internal.name).write_bytes(b"whale")
    with pytest.raises(InternalStateError, match=r"1\.1 is missing or damaged"):
        states.take(internal)
    (tmp_path / internal.name).unlink()
    with pytest.raises(InternalStateError, match="the file has 0"):
        states.take(internal)


def test_only_the_last_internal_states_are_kept_under_unique_names(tmp_path):
    states = InternalStates(tmp_path, Hooks())
    names = [states.leave(1, b"%d" % number).name for number in range(KEPT + 5)]
    assert len(set(names)) == len(names)
    assert len(list(tmp_path.iterdir())) == KEPT
    assert (tmp_path / names[-1]).exists()
