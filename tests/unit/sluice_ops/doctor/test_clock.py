"""The doctor compares a host's clock with PostgreSQL's."""

from types import SimpleNamespace

import psycopg
import pytest

from sluice_ops.doctor import reach
from sluice_ops.doctor.finding import Verdict


class Database:
    """A connection to a PostgreSQL whose clock shows `now`."""

    def __init__(self, now):
        self.now = now

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def execute(self, _query):
        return SimpleNamespace(fetchone=lambda: (self.now,))


@pytest.mark.parametrize(
    ("theirs", "verdict", "says"),
    [
        (1000.0, Verdict.OK, "within 5 s of PostgreSQL's"),
        (1004.9, Verdict.OK, "within 5 s"),
        (1061.0, Verdict.BAD, "this host's clock is 61 s behind PostgreSQL's"),
        (940.0, Verdict.BAD, "this host's clock is 60 s ahead of PostgreSQL's"),
    ],
)
def test_a_clock_may_be_five_seconds_off(monkeypatch, theirs, verdict, says):
    monkeypatch.setattr(reach.psycopg, "connect", lambda *_, **__: Database(theirs))
    monkeypatch.setattr(reach, "time", SimpleNamespace(time=lambda: 1000.0))
    (finding,) = reach.check_clock("postgresql://db")
    assert finding.verdict is verdict
    assert says in finding.sentence
    assert bool(finding.advice) is (verdict is Verdict.BAD)


def test_a_slow_answer_is_no_wrong_clock():
    assert reach.clock_finding(1000.0, 1015.0, 1030.0).verdict is Verdict.OK


def test_without_postgresql_the_clock_is_not_judged(monkeypatch):
    def refused(*_, **__):
        raise psycopg.OperationalError

    monkeypatch.setattr(reach.psycopg, "connect", refused)
    assert [*reach.check_clock("postgresql://db")] == []
