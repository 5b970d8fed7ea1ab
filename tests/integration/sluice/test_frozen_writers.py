"""A writer that is frozen in its PostgreSQL transaction, and the next owner of its tier."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest

from sluice.postgres import LOCK_SECONDS, connect
from sluice.sinks.frozen_writers import Right, end_frozen
from sluice.sinks.ledger import Ledger
from sluice.sinks.table import Once
from tests.integration.sluice.test_sinks import batch, rows, table
from tests.lab import ROOT, Lab

pytestmark = [pytest.mark.timeout(240), pytest.mark.long]
__all__ = ["table"]

WRITER = """
import sys, time
from sluice.sinks.batches import Batch
from sluice.sinks.ledger import Ledger
from sluice.api.sink import Rows
from sluice.sinks.table import Once

postgres, name = sys.argv[1:3]
table = Once(name, {"n": "bigint", "note": "text"})

def aside():
    print("holds", flush=True)
    time.sleep(3600)

rows = Rows({"n": [0, 1], "note": [None] * 2}, ["0:0", "0:1"], ["0"] * 2)
Ledger(postgres, name, 1, table).write(Batch({"in/0": 0}, {"in/0": 2}), rows, epoch=1, put_quarantined=aside)
"""
"""A writer that never ends its transaction."""


@pytest.fixture
def frozen(lab: Lab, table: Once) -> Iterator[subprocess.Popen[bytes]]:
    """Run a writer, and freeze it in its transaction."""
    words = [sys.executable, "-c", WRITER, lab.endpoints.postgres, table.name]
    with subprocess.Popen(words, cwd=ROOT, env=lab.env, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"holds\n"
        process.send_signal(signal.SIGSTOP)
        yield process
        process.kill()


def test_a_tiers_owner_ends_the_session_of_a_frozen_writer(
    lab: Lab, table: Once, frozen: subprocess.Popen[bytes]
) -> None:
    assert frozen.poll() is None
    with closing(Ledger(lab.endpoints.postgres, table.name, 2, table)) as ledger:
        started = time.monotonic()
        with pytest.raises(psycopg.errors.LockNotAvailable):
            ledger.write(batch(0, 3), rows(0, 3), epoch=2)
        assert ledger.write(batch(0, 3), rows(0, 3), epoch=2).written == 3
        assert time.monotonic() - started < LOCK_SECONDS + 5
    assert lab.query(f"select count(*) from {table.name}") == [(3,)]  # noqa: S608


def test_an_incarnation_with_a_lesser_right_ends_no_session(
    lab: Lab, table: Once, frozen: subprocess.Popen[bytes]
) -> None:
    assert frozen.poll() is None
    with closing(connect(lab.endpoints.postgres)) as connection:
        time.sleep(1.5)
        assert end_frozen(connection, Right(1, 1), table.name, 1.0) == 0, "the session has the same right"
        assert end_frozen(connection, Right(2, 2), f"{table.name}-other", 1.0) == 0, (
            "the session belongs to another tier"
        )
        assert end_frozen(connection, Right(2, 2), table.name, 60.0) == 0, "the session may be alive"
        assert end_frozen(connection, Right(2, 2), table.name, 1.0) == 1
