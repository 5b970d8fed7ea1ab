"""Tiers that write what readers outside of Sluice read: drivers are killed, and each record comes
out once.
"""

import signal
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession

from sluice.api import declarations
from sluice.audit.__main__ import Auditor
from sluice_ops.model.incarnation import State
from sluice_ops.model.status import Check
from sluice_ops.queries import figures
from tests.integration.sluice.test_http_sink import is_done, put
from tests.integration.sluice.test_killed_at_commit import HOLD
from tests.integration.sluice.test_killed_at_commit import session as session_of
from tests.lab import Lab, until

PIPELINE_MODULE = "tests.integration.sluice.outside_pipeline"
FIRST, MORE, ALL = 300, 600, 900

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]


@pytest.fixture(scope="module", autouse=True)
def held_commits(lab: Lab) -> None:
    with psycopg.connect(lab.endpoints.postgres, autocommit=True) as connection:
        connection.execute(HOLD)


def rows_in_ledger(lab: Lab, tier: str) -> int:
    return int(
        lab.query(f"select coalesce(sum(rows_out), 0) from ledger where tier = '{tier}'")[0][0]  # noqa: S608
    )


def kill_at_commit(lab: Lab, tier: str, end: int) -> None:
    """Put records, kill a tier's driver at the commit of a batch, and have it rolled back."""
    with psycopg.connect(lab.endpoints.postgres, autocommit=True) as connection:
        connection.execute("SELECT pg_advisory_lock(hashtext(%s))", (tier,))
        put(lab, end)
        waiting = until(f"{tier} commits", lambda: session_of(lab, tier))
        lab.driver(tier, 1).send_signal(signal.SIGKILL)
        connection.execute("SELECT pg_terminate_backend(%s, 10000)", (waiting,))
    lab.stop(tier, 1)


def move(lab: Lab, tier: str, end: int) -> None:
    """Start another driver of a killed tier, hand over to a third one, and put records."""
    lab.start_owner(tier, 2, "h2")
    lab.cut(tier, 2, 3, "h3")
    lab.wait_caught_up(tier, 3)
    lab.set_owner(tier, 3)
    lab.wait_for(tier, 2, State.STOPPED)
    lab.stop(tier, 2)
    put(lab, end)
    until("every record is written", lambda: is_done(lab, tier))


def numbers(session: SparkSession, folder: Path) -> list[int]:
    return sorted(row["n"] for row in session.read.parquet(f"file://{folder}").collect())


def test_spark_reads_each_record_once_from_the_files_of_a_killed_tier(
    lab: Lab, session: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLUICE_ENDPOINTS", str(lab.home / "endpoints.json"))
    folder = lab.home / "archive" / "numbers"
    put(lab, FIRST)
    lab.start_owner("save", 1, "h1")
    until("a batch is written", lambda: rows_in_ledger(lab, "save") > 0)
    kill_at_commit(lab, "save", MORE)
    move(lab, "save", ALL)
    until("all rows are in files", lambda: lab.query("select count(*) from saved") == [(0,)])
    (folder / "hour=2000-01-01-00").mkdir()
    (folder / "hour=2000-01-01-00" / ".from-000000000000.parquet.1").write_text("a writer died here")
    assert numbers(session, folder) == list(range(ALL))

    with closing(Auditor((declarations.load(PIPELINE_MODULE).tier("save"),), lab.endpoints)) as auditor:
        assert auditor.check() == []
        lab.query("update archived set rows = rows - 2 returning rows")
        (lost,) = auditor.check()
        assert (lost.records, "the number of rows in the files of saved grew by -2" in lost.sentence) == (
            2,
            True,
        )
        (line,) = (line for line in figures.read_figures().audit if line.tier == "save")
        assert line.checked is Check.SUMS
