"""What a driver cannot begin without may be away: it waits, says so, and begins when that is back."""

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
from tests.unit.sluice.living import Query, Told


class Away(Query):
    """Cannot begin as often as there are errors left."""

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


class Keeps(Told):
    """Remembers what was said."""

    def __init__(self, *told):
        super().__init__(1, told, [])
        self.said = []

    def enter(self, state, *, error=None, stopped_at=None):
        self.said.append(str(state) if error is None else f"{state}: {error}")
        super().enter(state, stopped_at=stopped_at)

    def note(self, **changes):
        if changes.get("away", self.report.away) != self.report.away:
            self.said.append(changes["away"])
        super().note(**changes)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    monkeypatch.setattr(wait_for_services, "AGAIN_SECONDS", 0.0)


def live(follow, query, folder):
    return Life(follow, query, InternalStates(folder, Hooks()), Flow(), Workers(), Pulse(lambda: None)).live()


@pytest.mark.parametrize("error", [StreamError("Kafka is away"), psycopg.OperationalError("no")])
def test_it_waits_for_what_it_cannot_run_without(tmp_path, error):
    log, follow = [], Keeps(*[Directive.RUN] * 4)
    assert live(follow, Away(log, error, error), tmp_path) == 0
    told = "Kafka is away" if isinstance(error, StreamError) else "PostgreSQL: OperationalError: no"
    assert follow.said == [told, State.RUNNING, None, State.STOPPED]
    assert log == ["run", "hold"]


def test_a_standby_warms_up_when_it_is_back(tmp_path):
    log, follow = [], Keeps(*[Directive.STANDBY] * 3)
    assert live(follow, Away(log, StreamError("away")), tmp_path) == 0
    assert follow.said == [State.WARMING, "away", None, State.READY, State.STOPPED]


def test_who_is_given_the_tier_while_it_waits_to_warm_up_runs_cold(tmp_path):
    log, follow = [], Keeps(Directive.STANDBY, Directive.RUN, Directive.RUN)
    assert live(follow, Away(log, StreamError("away"), StreamError("away")), tmp_path) == 0
    assert follow.said == [State.WARMING, "away", State.READY, State.RUNNING, None, State.STOPPED]
    assert log == ["run", "hold"]


def test_it_ends_when_it_is_told_to_while_it_waits(tmp_path):
    follow = Keeps(Directive.RUN)
    assert live(follow, Away([], StreamError("away")), tmp_path) == 0
    assert follow.said == ["away", State.STOPPED]


def test_one_that_runs_says_what_its_sink_lacks_until_it_is_held(tmp_path):
    flow, follow = Flow(), Keeps(*[Directive.RUN] * 3, Directive.HOLD)
    flow.away = "crm takes no records: it answers 403"
    assert (
        Life(
            follow, Query([]), InternalStates(tmp_path, Hooks()), flow, Workers(), Pulse(lambda: None)
        ).live()
        == 0
    )
    assert follow.said == [State.RUNNING, flow.away, None, State.PAUSED, State.STOPPED]


def test_a_stream_that_is_not_there_is_not_waited_for(tmp_path):
    follow = Keeps(Directive.RUN)
    assert live(follow, Away([], NoStreamError("no such stream")), tmp_path) == 1
    assert follow.said == ["failed: no such stream"]


@pytest.mark.parametrize(
    ("leaving", "said", "code"),
    [(False, "failed: RuntimeError: boom", 1), (True, "stopped: RuntimeError: boom", 0)],
)
def test_errors_of_a_driver_asked_to_end_are_no_failure_of_its_tier(tmp_path, leaving, said, code):
    class Breaks(Query):
        def hold(self):
            message = "boom"
            raise RuntimeError(message)

    follow = Keeps(Directive.RUN)
    follow.leaving = leaving
    assert live(follow, Breaks([]), tmp_path) == code
    assert follow.said[-1] == said


def test_what_was_left_is_taken_once_however_often_it_is_tried(tmp_path):
    class Counts(Hooks):
        taken = 0

        def resume_execution(self, _state):
            self.taken += 1

    hooks, follow = Counts(), Keeps(*[Directive.RUN] * 3)
    states = InternalStates(tmp_path, hooks)
    follow._receipts.append(Receipt(positions={"in/0": 1}, internal=states.leave(0, b"left"), at=0))
    assert (
        Life(
            follow,
            Away([], StreamError("away"), StreamError("away")),
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
