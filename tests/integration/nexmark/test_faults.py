"""Nexmark's queries on real Kafka: handed over to other code, killed, and handed over with other
partitions while events flow, their tables are those of DuckDB.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

import nexmark
from sluice import releases
from sluice.api.declarations import Tier
from sluice.audit.__main__ import Auditor
from sluice.kafka.reader import Streams
from sluice.sinks.table import Table
from sluice_ops.model.incarnation import STATE_PARTITIONS, Phase, State
from tests.integration.nexmark.event_feed import EventFeed, feeding
from tests.integration.nexmark.oracle import expected
from tests.integration.nexmark.package import write_package
from tests.integration.sluice.delivery_checks import WRITES_AFTER_NEXT_OWNER
from tests.integration.sluice.state_feed import ends, equation
from tests.lab import Lab, opened, until

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]

EDITS = {
    "auctions.py": ("begins <= at <= expires", "at >= begins and expires >= at"),
    "bids.py": ('F.timestamp_millis("at")', 'F.timestamp_micros(F.col("at") * 1000)'),
    "joins.py": ("isin(*LOCAL_STATES)", "isin([*LOCAL_STATES])"),
    "windows.py": ('F.col("span.start")', 'F.col("span").getField("start")'),
}
"""File → a text, and other code that does the same."""
PARTITIONS = 5
LAST_ROUNDS = 4
"""Batches of events after the portions: a watermark is that of the batch before."""
GROUPS = [("q0", "q4"), ("q1", "q2", "q11"), ("q3", "q8"), ("q5", "q12"), ("q6", "q7")]
"""The queries of a run. Each incarnation of three tiers with state takes two minutes to start."""
NEVER_LESS = {"q4": "auctions", "q5": "bids", "q7": "price", "q11": "bids", "q12": "bids"}
"""Query → a column that never decreases in a row of its table."""
WATCH = """
    CREATE FUNCTION note_decrease() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF (to_jsonb(new) ->> tg_argv[0])::bigint < (to_jsonb(old) ->> tg_argv[0])::bigint THEN
    INSERT INTO decreased VALUES (old::text, new::text); END IF; RETURN new; END $$
"""


def publish_edited(lab: Lab, folder: Path) -> str:
    """Publish other code that does the same; return the release."""
    for name, (before, after) in EDITS.items():
        file = folder / "nexmark" / name
        code = file.read_text()
        assert before in code
        file.write_text(code.replace(before, after))
    command = [sys.executable, "-m", "sluice.commands.publish"]
    done = subprocess.run(command, env=lab.env, cwd=folder, capture_output=True, text=True, check=False)
    match = re.search(r"release (r2-[0-9a-f]+) is new", done.stdout)
    assert match is not None, done.stdout + done.stderr
    return match[1]


def watch(lab: Lab, columns: dict[str, str]) -> None:
    """Note each decrease of a column, by table."""
    with psycopg.connect(lab.endpoints.postgres) as connection:
        connection.execute("CREATE TABLE decreased (before text, after text)")
        connection.execute(WATCH)
        for table, column in columns.items():
            trigger = (
                f"CREATE TRIGGER watch BEFORE UPDATE ON {table}"
                f" FOR EACH ROW EXECUTE FUNCTION note_decrease('{column}')"
            )
            connection.execute(trigger.encode())


def in_utc(value: object) -> object:
    """Return a time without zone, as DuckDB has it."""
    return value.astimezone(UTC).replace(tzinfo=None) if isinstance(value, datetime) else value


class Tiers:
    """The tiers of some queries. All of them get each fault together."""

    def __init__(self, lab: Lab, queries: tuple[str, ...]) -> None:
        self._lab = lab
        self.declared: dict[str, Tier] = {name: nexmark.PIPELINE.tier(name) for name in queries}
        self.tables = {
            name: tier.sink for name, tier in self.declared.items() if isinstance(tier.sink, Table)
        }
        self.number = 0

    def start(self, host: str, **more: Any) -> None:
        """Start the next incarnations as owners, which nobody hands over to."""
        self.number += 1
        for name in self.declared:
            self._lab.start_owner(name, self.number, host, **more)
        for name in self.declared:
            self._lab.wait_for(name, self.number, State.RUNNING)
        self.flow()

    def kill(self) -> None:
        """Kill the owners' drivers."""
        for name in self.declared:
            self._lab.driver(name, self.number).kill()
        for name in self.declared:
            self._lab.stop(name, self.number)

    def hand_over(self, host: str, **more: Any) -> None:
        """Start the next incarnations on a host, and let them take over."""
        lab, owner, following = self._lab, self.number, self.number + 1
        for name in self.declared:
            lab.set_owner(name, owner, following, Phase.PREPARE)
            lab.start(name, following, host, **more)
        for name in self.declared:
            lab.wait_for(name, following, State.READY)
        for name in self.declared:
            lab.set_owner(name, owner, following, Phase.CUT)
        for name in self.declared:
            lab.wait_caught_up(name, following)
            lab.set_owner(name, following)
            lab.wait_for(name, owner, State.STOPPED)
            lab.stop(name, owner)
        self.number = following
        self.flow()

    def flow(self) -> None:
        """Wait until the owners have written some batches."""
        for name in self.declared:
            until(f"{name} writes", partial(self._writes, name))

    def _writes(self, name: str) -> bool:
        batches = f"tier = '{name}' and incarnation = {self.number}"
        return int(self._lab.query(f"select count(*) from ledger where {batches}")[0][0]) > 2  # noqa: S608

    def wait_level(self) -> None:
        """Wait until the ledger of each tier has reached the ends of its inputs."""
        with closing(Streams(self._lab.endpoints.kafka)) as streams:
            for name, tier in self.declared.items():
                inputs = streams.bounds([stream.name for stream in tier.inputs]).ends
                until(f"{name} has no lag", partial(self._is_level, name, inputs))

    def _is_level(self, name: str, inputs: dict[str, int]) -> bool:
        return ends(self._lab, name) == inputs

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return the sorted rows of a query's table."""
        table = self.tables[query]
        columns = ", ".join(f'"{column}"' for column in table.columns)
        rows = self._lab.query(f"select {columns} from {table.name}")  # noqa: S608
        return sorted(tuple(map(in_utc, row)) for row in rows)

    def assert_repartitioned(self) -> None:
        """Assert that the owners' states were spread over other partitions, with every key."""
        for name, tier in self.declared.items():
            if tier.state is None:
                continue
            report = self._lab.report(name, self.number)
            assert report is not None
            assert report.started_from is not None
            done = report.started_from.repartitioned
            assert done is not None
            assert (done.before, done.after) == (STATE_PARTITIONS, PARTITIONS)
            assert done.keys_before == done.keys_after > 0


@pytest.fixture
def code(tmp_path: Path, queries: tuple[str, ...]) -> Path:
    write_package(tmp_path, queries)
    return tmp_path


@pytest.fixture
def lab(tmp_path_factory: pytest.TempPathFactory, code: Path) -> Iterator[Lab]:
    """Start a lab whose pipeline has some of Nexmark's queries."""
    with opened(tmp_path_factory.mktemp("nexmark"), "nexmark", code=code) as opened_lab:
        yield opened_lab


@pytest.mark.parametrize("queries", GROUPS, ids="-".join)
def test_the_tables_are_those_of_duckdb_after_faults(lab: Lab, code: Path, queries: tuple[str, ...]) -> None:
    tiers, feed = Tiers(lab, queries), EventFeed(lab)
    watch(lab, {tiers.tables[query].name: NEVER_LESS[query] for query in queries if query in NEVER_LESS})
    (first,), second = releases.all_stored(lab.home), publish_edited(lab, code)
    with closing(Auditor(tuple(tiers.declared.values()), lab.endpoints)) as auditor:
        with feeding(feed):
            tiers.start("h1", release=first.name)
            assert auditor.check() == []
            tiers.hand_over("h2", release=second)
            assert auditor.check() == []
            tiers.kill()
            tiers.start("h3", release=second)
            assert auditor.check() == []
            tiers.hand_over("h1", release=second, partitions=PARTITIONS)
            tiers.assert_repartitioned()
        for _ in range(LAST_ROUNDS):
            feed.give_last()
            tiers.wait_level()
        assert auditor.check() == []
    for query, tier in tiers.declared.items():
        rows = expected(query, feed.read_by(tier), feed.end)
        assert rows
        assert tiers.rows(query) == rows, query
        assert equation(lab, query) == feed.equation(tier), query
    assert lab.query(WRITES_AFTER_NEXT_OWNER) == []
    assert lab.query("select * from decreased") == []
