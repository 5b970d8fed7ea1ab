"""Drivers that are killed while PostgreSQL commits their batch: whether the batch is written or
not, each record is in the table once.

A deferred trigger holds the commit, when all of the batch is written and not yet visible.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from sluice.kafka.reader import Streams
from sluice.sinks.frozen_writers import right_of
from tests.integration.sluice.delivery_checks import BALANCE, WRITES_AFTER_NEXT_OWNER
from tests.integration.sluice.state_feed import ends
from tests.integration.sluice.test_frozen_drivers import batches
from tests.integration.sluice.test_handover import LEDGER_GAPS
from tests.integration.sluice.test_workers import feeding
from tests.lab import Lab, until

PIPELINE_MODULE = "tests.integration.sluice.hanging_pipeline"
SINKS = ("store", "sum", "tally")
"""Each kind of table, the last with a Spark checkpoint."""
pytestmark = [pytest.mark.timeout(900), pytest.mark.long]

HOLD = """
    CREATE FUNCTION hold_commit() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN
            WHILE NOT pg_try_advisory_xact_lock_shared(hashtext(NEW.tier)) LOOP
                PERFORM pg_sleep(0.05);
            END LOOP;
            RETURN NULL;
        END';
    CREATE CONSTRAINT TRIGGER hold_commit AFTER INSERT ON ledger DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION hold_commit()
"""
"""A commit waits as long as a session holds the lock with the name of its tier.

It sleeps, because a writer's session ends a wait for a lock after some seconds.
"""


@contextmanager
def held_commits(lab: Lab) -> Iterator[dict[str, int]]:
    """Hold the next commit of each tier; yield the waiting PostgreSQL sessions."""
    with psycopg.connect(lab.endpoints.postgres, autocommit=True) as connection:
        for tier in SINKS:
            connection.execute("SELECT pg_advisory_lock(hashtext(%s))", (tier,))
        yield {tier: until(f"{tier} commits", lambda tier=tier: session(lab, tier)) for tier in SINKS}


def session(lab: Lab, tier: str) -> int | None:
    """Return the session whose commit of a tier's batch waits."""
    rows = lab.query("select pid, application_name from pg_stat_activity where wait_event = 'PgSleep'")
    return next((int(pid) for pid, name in rows if right_of(name, tier)), None)


def kill(lab: Lab, number: int, sessions: dict[str, int]) -> None:
    """Kill all drivers while their commits wait."""
    for tier in SINKS:
        lab.driver(tier, number).send_signal(signal.SIGKILL)
        lab.driver(tier, number).wait()
        assert session(lab, tier) == sessions[tier], "the commit waited until the driver was dead"
        lab.stop(tier, number)


def last_batch(lab: Lab, tier: str) -> int:
    query = f"select max(batch) from ledger where tier = '{tier}'"  # noqa: S608
    return int(lab.query(query)[0][0])


def writer(lab: Lab, tier: str, batch: int) -> int | None:
    """Return the incarnation that has written a batch."""
    query = f"select incarnation from ledger where tier = '{tier}' and batch = {batch}"  # noqa: S608
    rows = lab.query(query)
    return int(rows[0][0]) if rows else None


def is_blocked(lab: Lab, tier: str, number: int) -> bool:
    """Tell whether an incarnation waits for the tier's row in PostgreSQL."""
    names = lab.query("select application_name from pg_stat_activity where wait_event_type = 'Lock'")
    rights = [right_of(name, tier) for (name,) in names]
    return any(right is not None and right.incarnation == number for right in rights)


def start_all(lab: Lab, number: int) -> None:
    for tier in SINKS:
        lab.start_owner(tier, number, "h2")


def wait_all(lab: Lab, number: int) -> None:
    for tier in SINKS:
        until(f"{tier} continues", lambda tier=tier: batches(lab, tier, number) > 2)


def test_each_record_is_in_its_table_once(lab: Lab) -> None:
    with psycopg.connect(lab.endpoints.postgres) as connection:
        connection.execute(HOLD)
    streams = Streams(lab.endpoints.kafka)
    with feeding(lab) as fed:
        lab.start_owner("enter", 1, "h1")
        start_all(lab, 1)
        wait_all(lab, 1)

        # The batch is committed, but the driver never hears of it.
        with held_commits(lab) as sessions:
            before = {tier: last_batch(lab, tier) for tier in SINKS}
            kill(lab, 1, sessions)
        for tier in SINKS:
            until(
                f"the batch of {tier} is committed",
                lambda tier=tier: writer(lab, tier, before[tier] + 1) == 1,
                20,
            )
        start_all(lab, 2)
        wait_all(lab, 2)

        # The batch is rolled back.
        with held_commits(lab) as sessions:
            before = {tier: last_batch(lab, tier) for tier in SINKS}
            kill(lab, 2, sessions)
            for tier, pid in sessions.items():
                assert lab.query(f"select pg_terminate_backend({pid}, 5000)") == [(True,)]
                assert last_batch(lab, tier) == before[tier]
        start_all(lab, 3)
        wait_all(lab, 3)

        # The batch is committed only after the next incarnation has begun, from the earlier end of
        # the ledger.
        with held_commits(lab) as sessions:
            before = {tier: last_batch(lab, tier) for tier in SINKS}
            kill(lab, 3, sessions)
            start_all(lab, 4)
            for tier in SINKS:
                until(
                    f"the next incarnation of {tier} waits with a batch",
                    lambda tier=tier: is_blocked(lab, tier, 4),
                )
        for tier in SINKS:
            until(
                f"the batch of {tier} is committed",
                lambda tier=tier: writer(lab, tier, before[tier] + 1) == 3,
                20,
            )
        wait_all(lab, 4)
    until(
        "every number is in the ledger",
        lambda: all(ends(lab, tier) == streams.bounds(["numbers"]).ends for tier in SINKS),
    )
    streams.close()
    assert lab.query("select count(*), count(distinct n), sum(n) from stored") == [
        (len(fed), len(fed), sum(fed))
    ]
    assert lab.query("select sum(hits), sum(ns) from summed") == [(len(fed), sum(fed))]
    assert lab.query("select sum(hits), sum(ns) from tallied") == [(len(fed), sum(fed))]
    assert lab.query(BALANCE) == [(0,)]
    assert lab.query(LEDGER_GAPS) == []
    assert lab.query(WRITES_AFTER_NEXT_OWNER) == []
