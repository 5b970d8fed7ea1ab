"""A driver waits for Kafka and PostgreSQL, reports the outage, and starts when the service
is back.
"""

import psycopg
import pytest
from confluent_kafka import KafkaError, KafkaException

from sluice.api.hooks import Hooks
from sluice.driver.control import wait_for_services
from sluice.driver.control.wait_for_services import is_away
from sluice.driver.counters import Flow
from sluice.driver.process.heartbeat import Pulse
from sluice.driver.process.life import Life
from sluice.driver.spark.workers import Workers
from sluice.driver.state.hook_state import InternalStates
from sluice.kafka.reader import NoStreamError, StreamError
from sluice_ops.model.incarnation import Directive, Receipt, State
from tests.unit.sluice.fake_life import Query, ScriptedFollower


class FailingQuery(Query):
    """A query whose start fails once for each given error."""

    def __init__(self, log, *errors):
        super().__init__(log)
        self._errors = list(errors)

    def _begin(self):
        if self._errors:
            raise self._errors.pop(0)

    def warm(self, _go_on):
        self._begin()
        self.log.append("warm")

    def run(self):
        self._begin()
        return super().run()


class LoggingFollower(ScriptedFollower):
    """A follower that keeps each reported state and outage."""

    def __init__(self, *directives):
        super().__init__(1, directives, [])
        self.reports = []

    def enter(self, state, *, error=None, stopped_at=None):
        self.reports.append(str(state) if error is None else f"{state}: {error}")
        super().enter(state, stopped_at=stopped_at)

    def note(self, **changes):
        if changes.get("away", self.report.away) != self.report.away:
            self.reports.append(changes["away"])
        super().note(**changes)


@pytest.fixture(autouse=True)
def _without_waits(monkeypatch):
    monkeypatch.setattr(wait_for_services, "RETRY_SECONDS", 0.0)


def live(follow, query, folder):
    return Life(follow, query, InternalStates(folder, Hooks()), Flow(), Workers(), Pulse(lambda: None)).live()


@pytest.mark.parametrize("error", [StreamError("Kafka is away"), psycopg.OperationalError("no")])
def test_a_driver_waits_for_kafka_and_postgresql(tmp_path, error):
    log, follow = [], LoggingFollower(*[Directive.RUN] * 4)
    assert live(follow, FailingQuery(log, error, error), tmp_path) == 0
    outage = "Kafka is away" if isinstance(error, StreamError) else "PostgreSQL: OperationalError: no"
    assert follow.reports == [outage, State.RUNNING, None, State.STOPPED]
    assert log == ["run", "hold"]


def test_a_standby_warms_up_when_kafka_is_back(tmp_path):
    log, follow = [], LoggingFollower(*[Directive.STANDBY] * 3)
    assert live(follow, FailingQuery(log, StreamError("away")), tmp_path) == 0
    assert follow.reports == [State.WARMING, "away", None, State.READY, State.STOPPED]


def test_a_standby_that_gets_the_tier_before_its_warm_up_runs_cold(tmp_path):
    log, follow = [], LoggingFollower(Directive.STANDBY, Directive.RUN, Directive.RUN)
    assert live(follow, FailingQuery(log, StreamError("away"), StreamError("away")), tmp_path) == 0
    assert follow.reports == [State.WARMING, "away", State.READY, State.RUNNING, None, State.STOPPED]
    assert log == ["run", "hold"]


def test_a_waiting_driver_ends_when_its_directives_end(tmp_path):
    follow = LoggingFollower(Directive.RUN)
    assert live(follow, FailingQuery([], StreamError("away")), tmp_path) == 0
    assert follow.reports == ["away", State.STOPPED]


def test_a_running_driver_reports_its_sinks_outage_until_it_is_held(tmp_path):
    flow, follow = Flow(), LoggingFollower(*[Directive.RUN] * 3, Directive.HOLD)
    flow.away = "crm takes no records: it answers 403"
    assert (
        Life(
            follow, Query([]), InternalStates(tmp_path, Hooks()), flow, Workers(), Pulse(lambda: None)
        ).live()
        == 0
    )
    assert follow.reports == [State.RUNNING, flow.away, None, State.PAUSED, State.STOPPED]


def test_a_missing_stream_fails_the_driver(tmp_path):
    follow = LoggingFollower(Directive.RUN)
    assert live(follow, FailingQuery([], NoStreamError("no such stream")), tmp_path) == 1
    assert follow.reports == ["failed: no such stream"]


@pytest.mark.parametrize(
    ("leaving", "report", "code"),
    [(False, "failed: RuntimeError: boom", 1), (True, "stopped: RuntimeError: boom", 0)],
)
def test_errors_of_a_driver_asked_to_end_are_no_failure_of_its_tier(tmp_path, leaving, report, code):
    class Breaks(Query):
        def hold(self):
            message = "boom"
            raise RuntimeError(message)

    follow = LoggingFollower(Directive.RUN)
    follow.leaving = leaving
    assert live(follow, Breaks([]), tmp_path) == code
    assert follow.reports[-1] == report


def test_internal_state_is_taken_once_despite_failed_starts(tmp_path):
    class Counts(Hooks):
        taken = 0

        def resume_execution(self, _state):
            self.taken += 1

    hooks, follow = Counts(), LoggingFollower(*[Directive.RUN] * 3)
    states = InternalStates(tmp_path, hooks)
    follow._receipts.append(Receipt(positions={"in/0": 1}, internal=states.leave(0, b"left"), at=0))
    assert (
        Life(
            follow,
            FailingQuery([], StreamError("away"), StreamError("away")),
            states,
            Flow(),
            Workers(),
            Pulse(lambda: None),
        ).live()
        == 0
    )
    assert hooks.taken == 1


@pytest.mark.parametrize(
    ("error", "away"),
    [
        (StreamError("no answer"), True),
        (KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN)), True),
        (psycopg.OperationalError("no answer"), True),
        (psycopg.errors.ReadOnlySqlTransaction("another server takes over"), True),
        (NoStreamError("no such stream"), False),
        (psycopg.DataError("a character NUL"), False),
        (RuntimeError("boom"), False),
    ],
)
def test_engines_and_lives_wait_for_the_same_errors(error, away):
    assert is_away(error) is away
