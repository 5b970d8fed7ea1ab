"""The book of the audit in PostgreSQL: the progress of each tier and input partition, and losses.

A loss stays open until a person settles it.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from psycopg import sql

from sluice.postgres import Connected
from sluice_ops.model.status import Check, Loss

STATEMENTS: tuple[sql.SQL, ...] = (
    sql.SQL(
        "CREATE TABLE IF NOT EXISTS audit (tier text, partition text, judged bigint NOT NULL, once bigint "
        "NOT NULL, again bigint NOT NULL, ahead jsonb NOT NULL, judges boolean NOT NULL, at timestamptz "
        "NOT NULL DEFAULT clock_timestamp(), PRIMARY KEY (tier, partition))"
    ),
    sql.SQL(  # losses moved to the table `losses`
        "DO $$ BEGIN IF EXISTS (SELECT FROM information_schema.columns WHERE table_schema = current_schema()"
        " AND table_name = 'audit' AND column_name = 'first_lost') THEN"
        " ALTER TABLE audit DROP COLUMN IF EXISTS lost, DROP COLUMN first_lost; END IF; END $$"
    ),
    sql.SQL(  # earlier versions did not count records that were deleted before the check
        "DO $$ BEGIN IF NOT EXISTS (SELECT FROM information_schema.columns WHERE table_schema = "
        "current_schema() AND table_name = 'audit' AND column_name = 'unseen') THEN ALTER TABLE audit ADD "
        "COLUMN unseen bigint NOT NULL DEFAULT 0; END IF; END $$"
    ),
    sql.SQL(  # earlier versions did not save how a tier is checked
        "DO $$ BEGIN IF NOT EXISTS (SELECT FROM information_schema.columns WHERE table_schema = "
        "current_schema() AND table_name = 'audit' AND column_name = 'checked') THEN ALTER TABLE audit ADD "
        "COLUMN checked text NOT NULL DEFAULT 'records'; END IF; END $$"
    ),
    sql.SQL(  # earlier versions did not save the first audited offset
        "DO $$ BEGIN IF NOT EXISTS (SELECT FROM information_schema.columns WHERE table_schema = "
        "current_schema() AND table_name = 'audit' AND column_name = 'since') THEN ALTER TABLE audit ADD "
        "COLUMN since bigint, ADD COLUMN partial text NOT NULL DEFAULT 'an older version of the audit "
        "began there and did not note why'; ALTER TABLE audit ALTER COLUMN partial SET DEFAULT ''; "
        "END IF; END $$"
    ),
    sql.SQL("CREATE TABLE IF NOT EXISTS frontier (tier text PRIMARY KEY, complete timestamptz NOT NULL)"),
    sql.SQL("ALTER TABLE frontier ADD COLUMN IF NOT EXISTS lateness integer"),
    sql.SQL(
        "CREATE TABLE IF NOT EXISTS losses (number bigserial PRIMARY KEY, tier text NOT NULL, place text "
        "NOT NULL, records bigint NOT NULL, sentence text NOT NULL, found_at timestamptz NOT NULL DEFAULT "
        "clock_timestamp(), settled_at timestamptz, settled_by text)"
    ),
    sql.SQL("CREATE TABLE IF NOT EXISTS audit_streams (stream text PRIMARY KEY, id text NOT NULL)"),
    sql.SQL("ALTER TABLE audit_streams ADD COLUMN IF NOT EXISTS ends jsonb NOT NULL DEFAULT '{}'"),
    sql.SQL(
        "CREATE TABLE IF NOT EXISTS audit_read (tier text, source text, position bigint NOT NULL,"
        " at timestamptz NOT NULL DEFAULT clock_timestamp(), PRIMARY KEY (tier, source))"
    ),
)


@dataclass
class Line:
    """The audit of one input partition of a tier."""

    judged: int
    """The next offset to judge."""
    once: int = 0
    again: int = 0
    ahead: list[tuple[int, int]] = field(default_factory=list)
    judges: bool = True
    """Whether a missing record is lost; false for a tier that leaves records out on purpose."""
    unseen: int = 0
    """How many records were deleted from their stream before the audit could check them.

    The audit does not know whether these records are lost.
    """
    since: int | None = None
    """The first offset that the audit judges; None if an earlier version did not save it."""
    partial: str = ""
    """Why the audit does not cover the tier from its first record on; empty if it does."""


@dataclass(frozen=True)
class Missing:
    """Input records of a tier that are lost: not in the output, in quarantine or left out."""

    place: str
    """The place of the first record, `stream/partition:offset`."""
    records: int
    sentence: str


@dataclass
class Page:
    """The saved results of one tier."""

    lines: dict[str, Line] = field(default_factory=dict)
    """By input partition, `stream/partition`."""
    read: dict[str, int] = field(default_factory=dict)
    """The position in each source: a partition of an output, the ledger, or a sum of a table."""
    checked: Check = Check.RECORDS

    @property
    def judged(self) -> dict[str, int]:
        """The next offset to judge, by input partition."""
        return {partition: line.judged for partition, line in self.lines.items()}


class Book(Connected):
    """The tables of the audit."""

    def load(self, tier: str) -> Page:
        """Return the saved results of a tier."""
        rows = self.open().execute(
            "SELECT partition, judged, once, again, ahead, judges, unseen, since, partial"
            " FROM audit WHERE tier = %s",
            (tier,),
        )
        lines = {
            partition: Line(judged, once, again, [(begin, end) for begin, end in ahead], *others)
            for partition, judged, once, again, ahead, *others in rows.fetchall()
        }
        read = (
            self.open().execute("SELECT source, position FROM audit_read WHERE tier = %s", (tier,)).fetchall()
        )
        return Page(lines, dict(read))

    def save(self, tier: str, page: Page, lost: Sequence[Missing]) -> None:
        """Save the results of a tier and add its losses, in one transaction."""
        connection = self.open()
        with connection.transaction(), connection.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO audit (tier, partition, judged, once, again, ahead, judges, unseen, since, "
                "partial, checked) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT (tier, "
                "partition) DO UPDATE SET (judged, once, again, ahead, judges, unseen, since, partial, "
                "checked, at) = (excluded.judged, excluded.once, excluded.again, excluded.ahead, "
                "excluded.judges, excluded.unseen, excluded.since, excluded.partial, excluded.checked, "
                "clock_timestamp())",
                [
                    (
                        tier,
                        place,
                        line.judged,
                        line.once,
                        line.again,
                        json.dumps(line.ahead),
                        line.judges,
                        line.unseen,
                        line.since,
                        line.partial,
                        page.checked,
                    )
                    for place, line in page.lines.items()
                ],
            )
            cursor.executemany(
                "INSERT INTO audit_read (tier, source, position) VALUES (%s, %s, %s) ON CONFLICT (tier, "
                "source) DO UPDATE SET (position, at) = (excluded.position, clock_timestamp())",
                [(tier, source, position) for source, position in page.read.items()],
            )
            cursor.executemany(
                "INSERT INTO losses (tier, place, records, sentence) VALUES (%s, %s, %s, %s)",
                [(tier, missing.place, missing.records, missing.sentence) for missing in lost],
            )

    def streams(self) -> dict[str, str]:
        """Return the ids of the streams that the audit has checked."""
        return dict(self.open().execute("SELECT stream, id FROM audit_streams").fetchall())

    def save_stream(self, stream: str, identity: str, lost: Mapping[str, Missing]) -> None:
        """Save a stream's id.

        With losses (by tier), also add the losses, and drop all positions in the stream.
        """
        connection = self.open()
        with connection.transaction(), connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO audit_streams (stream, id) VALUES (%s, %s)"
                " ON CONFLICT (stream) DO UPDATE SET (id, ends) = (excluded.id, '{}')",
                (stream, identity),
            )
            if not lost:
                return
            place = rf"^{re.escape(stream)}/\d+$"
            cursor.execute("DELETE FROM audit WHERE partition ~ %s", (place,))
            cursor.execute("DELETE FROM audit_read WHERE source ~ %s", (place,))
            cursor.executemany(
                "INSERT INTO losses (tier, place, records, sentence) VALUES (%s, %s, %s, %s)",
                [(tier, missing.place, missing.records, missing.sentence) for tier, missing in lost.items()],
            )

    def ends(self) -> dict[str, tuple[int, int]]:
        """Return the end of each partition at the last check, and the leader's epoch then."""
        rows = self.open().execute(
            "SELECT stream || '/' || partition, (seen->>0)::bigint, (seen->>1)::bigint"
            " FROM audit_streams, jsonb_each(ends) AS each (partition, seen)"
        )
        return {place: (end, epoch) for place, end, epoch in rows.fetchall()}

    def save_ends(
        self, ends: Mapping[str, tuple[int, int]], cut: Collection[str], lost: Mapping[str, Sequence[Missing]]
    ) -> None:
        """Save the ends of partitions, drop all positions in `cut` partitions, and add losses."""
        connection = self.open()
        with connection.transaction(), connection.cursor() as cursor:
            for place, end_and_epoch in ends.items():
                stream, _, partition = place.rpartition("/")
                cursor.execute(
                    "UPDATE audit_streams SET ends = ends || jsonb_build_object(%s::text, %s::jsonb)"
                    " WHERE stream = %s",
                    (partition, json.dumps(end_and_epoch), stream),
                )
            cursor.execute("DELETE FROM audit WHERE partition = ANY(%s)", (list(cut),))
            cursor.execute("DELETE FROM audit_read WHERE source = ANY(%s)", (list(cut),))
            cursor.executemany(
                "INSERT INTO losses (tier, place, records, sentence) VALUES (%s, %s, %s, %s)",
                [
                    (tier, missing.place, missing.records, missing.sentence)
                    for tier, losses in lost.items()
                    for missing in losses
                ],
            )

    def drop_undeclared(self, declared: Collection[str]) -> list[str]:
        """Drop the results of tiers that are no longer declared, and return the tiers' names.

        Their losses stay until they are settled.
        """
        connection = self.open()
        with connection.transaction():
            connection.execute("DELETE FROM audit_read WHERE tier <> ALL(%s)", (list(declared),))
            connection.execute("DELETE FROM frontier WHERE tier <> ALL(%s)", (list(declared),))
            dropped = connection.execute(
                "DELETE FROM audit WHERE tier <> ALL(%s) RETURNING tier", (list(declared),)
            ).fetchall()
        return sorted({row[0] for row in dropped})

    def complete(self, tier: str) -> float | None:
        """Return the saved time of arrival up to which a tier is complete, or None.

        Unit: epoch seconds.
        """
        row = (
            self.open()
            .execute("SELECT extract(epoch FROM complete)::float8 FROM frontier WHERE tier = %s", (tier,))
            .fetchone()
        )
        return None if row is None else float(row[0])

    def reported(self, tier: str, partition: str) -> list[range]:
        """Return the offsets of an input partition that are reported as lost.

        The audit reported them earlier, or `sluice skip` did.
        """
        query = (
            "SELECT split_part(place, ':', 2)::bigint, records FROM losses"
            " WHERE tier = %s AND split_part(place, ':', 1) = %s"
        )
        return [
            range(first, first + count)
            for first, count in self.open().execute(query, (tier, partition)).fetchall()
        ]

    def save_complete(self, tier: str, moment: float, lateness: int | None = None) -> None:
        """Save the time of arrival up to which a tier is complete (epoch seconds).

        If its state goes by event time, save the state's lateness, too.
        """
        self.open().execute(
            "INSERT INTO frontier (tier, complete, lateness) VALUES (%s, to_timestamp(%s), %s)"
            " ON CONFLICT (tier) DO UPDATE SET complete = excluded.complete, lateness = excluded.lateness",
            (tier, moment, lateness),
        )

    def losses(self) -> dict[str, Loss]:
        """Return the last unsettled loss of each tier that has one."""
        rows = self.open().execute(
            "SELECT DISTINCT ON (tier) tier, number, sentence FROM losses"
            " WHERE settled_at IS NULL ORDER BY tier, number DESC"
        )
        return {tier: Loss(number=number, sentence=sentence) for tier, number, sentence in rows.fetchall()}
