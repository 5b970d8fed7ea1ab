"""Reports of an incarnation about its flow: once after the trial as the owner, when its query
failed, and when it is held.
"""

from types import SimpleNamespace

import pytest

from sluice.api.hooks import Hooks
from sluice.driver.counters import Flow
from sluice.driver.process import life
from sluice.driver.process.heartbeat import Pulse
from sluice.driver.process.life import Life
from sluice.driver.spark.workers import Workers
from sluice.driver.state.hook_state import InternalStates
from sluice_ops.model.incarnation import TRIAL_SECONDS, Directive
from tests.unit.sluice.fake_life import Query, ScriptedFollower


class FlowFollower(ScriptedFollower):
    """A follower that keeps each reported flow."""

    def __init__(self, script):
        super().__init__(1, script, [])
        self.flows = []

    def note(self, **changes):
        super().note(**changes)
        self.flows += [changes["flowed"]] if "flowed" in changes else []


@pytest.fixture
def lived(tmp_path, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(life, "time", SimpleNamespace(monotonic=lambda: clock[0], time=lambda: 0.0))

    def through(*seconds, flow, script):
        def advance(passed):
            def step():
                clock[0] += passed

            return step

        follow = FlowFollower([*(advance(passed) for passed in seconds), *script])
        Life(
            follow, Query([]), InternalStates(tmp_path, Hooks()), flow, Workers(), Pulse(lambda: None)
        ).live()
        return follow.flows

    return through


def test_the_flow_is_reported_after_the_trial_and_when_held(lived):
    flow = Flow(records_in={"a": 30, "b": 20}, records_out={"c": 45}, quarantined=5, lag={"a": 2})
    first, last = lived(0.0, TRIAL_SECONDS - 1, 1.0, 50.0, flow=flow, script=[Directive.HOLD])
    assert (first.seconds, first.records_in, first.records_out, first.quarantined, first.waiting) == (
        TRIAL_SECONDS,
        50,
        45,
        5,
        2,
    )
    assert (last.seconds, last.restarts) == (TRIAL_SECONDS + 50.0, 0)


def test_records_from_before_a_hold_are_not_counted_again(lived):
    flow = Flow(records_in={"a": 30})
    *_, last = lived(0.0, TRIAL_SECONDS, flow=flow, script=[Directive.HOLD, Directive.RUN, Directive.RUN])
    assert (last.records_in, last.seconds) == (0, 0.0)


def test_a_failed_query_is_reported_at_once(lived):
    first, *_ = lived(0.0, 1.0, flow=Flow(restarts=1, failure="boom"), script=[])
    assert (first.seconds, first.restarts, first.error) == (0.0, 1, "boom")


def test_an_incarnation_that_never_owned_its_tier_reports_nothing(lived, monkeypatch):
    monkeypatch.setattr(
        FlowFollower, "owns", property(lambda _self: False, lambda _self, _value: None), raising=False
    )
    assert lived(0.0, 100.0, flow=Flow(restarts=1), script=[]) == []


class LateQuery(Query):
    """A query whose first output came a minute after the output before."""

    def gap(self):
        return 60.0


@pytest.mark.parametrize(
    ("after_stop", "script", "gap"),
    [
        (False, [Directive.RUN] * 2, 60.0),
        (True, [Directive.RUN] * 2, None),
        (False, [Directive.HOLD, *[Directive.RUN] * 2], None),
    ],
)
def test_a_stop_or_pause_that_somebody_asked_for_is_no_gap(tmp_path, after_stop, script, gap):
    follow = ScriptedFollower(1, script, [])
    follow.after_stop = after_stop
    Life(
        follow, LateQuery([]), InternalStates(tmp_path, Hooks()), Flow(), Workers(), Pulse(lambda: None)
    ).live()
    assert follow.report.gap_seconds == gap
