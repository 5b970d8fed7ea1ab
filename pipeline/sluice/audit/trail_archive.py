"""The trail in PostgreSQL: the audit moves entries from the channel to the table.

No row is ever changed. The table keeps entries for two years (`sluice.audit.retention`).
"""

import psycopg
from psycopg import sql

from sluice.postgres import index
from sluice_ops.channel import Channel, trail_queue
from sluice_ops.model import paths

STATEMENTS: tuple[sql.SQL | sql.Composed, ...] = (
    sql.SQL(
        "CREATE TABLE IF NOT EXISTS trail (role text, name text, at timestamptz NOT NULL, by text NOT "
        "NULL, layer text, what text NOT NULL, change text, outcome text NOT NULL, sentence text NOT NULL, "
        "PRIMARY KEY (role, name))"
    ),
    index("trail_at", "trail", "(at)"),
    sql.SQL(
        "CREATE OR REPLACE FUNCTION refuse_to_change() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'table % accepts only new rows; existing rows stay', TG_TABLE_NAME;"
        " END $$"
    ),
    sql.SQL(
        "CREATE OR REPLACE TRIGGER trail_is_only_added_to BEFORE UPDATE OR DELETE OR TRUNCATE ON trail"
        " FOR EACH STATEMENT EXECUTE FUNCTION refuse_to_change()"
    ),
)

_ADD = (
    "INSERT INTO trail (role, name, at, by, layer, what, change, outcome, sentence)"
    " VALUES (%s, %s, to_timestamp(%s), %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING"
)


def move(channel: Channel, connection: "psycopg.Connection[object]") -> int:
    """Move the entries that wait in the channel; return their number.

    After a crash, an entry may be inserted a second time, which has no effect.
    """
    waiting = trail_queue.queued(channel)
    for role, name, entry in waiting:
        values = (
            entry.at,
            entry.by,
            entry.layer,
            entry.what,
            entry.change,
            str(entry.outcome),
            entry.sentence,
        )
        connection.execute(_ADD, (str(role), name, *values))
        channel.delete(paths.trail(role, name))
    return len(waiting)
