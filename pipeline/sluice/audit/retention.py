"""The retention of Sluice's tables that nothing else bounds: one function in PostgreSQL, which the
audit calls once an hour.

The function deletes old rows only, with the rights of the tables' owner, so its callers need no
right to delete. The trail refuses to delete younger rows, whichever role asks.
"""

from typing import Any

import psycopg
from psycopg import sql

TRAIL_DAYS = 731
"""The retention of the table `trail`: two years."""
REFUSED_DAYS = 90
"""The retention of each table `<name>_refused`: three times that of a quarantine stream."""
AGAIN_DAYS = 90
"""The retention of marks of records that were reprocessed from quarantine.

Such a record is no longer in its stream by then, so no replay can read it. All other marks stay:
there is one for each path, and no more paths than partitions.
"""
EVERY_SECONDS = 3600.0

STATEMENTS: tuple[sql.SQL | sql.Composed, ...] = (
    sql.SQL(  # the age of older marks counts from this migration
        "DO $$ BEGIN IF NOT EXISTS (SELECT FROM information_schema.columns WHERE table_schema = "
        "current_schema() AND table_name = 'marks' AND column_name = 'at') THEN ALTER TABLE marks ADD "
        "COLUMN at timestamptz NOT NULL DEFAULT now(); END IF; END $$"
    ),
    sql.SQL(
        "CREATE OR REPLACE FUNCTION refuse_to_delete_what_is_young() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN IF OLD.at < now() - make_interval(days => {}) THEN RETURN OLD; END IF;"
        " RAISE EXCEPTION 'table %: this row is too young to delete', TG_TABLE_NAME; END $$"
    ).format(sql.Literal(TRAIL_DAYS)),
    sql.SQL(
        "CREATE OR REPLACE TRIGGER trail_keeps_what_is_young BEFORE DELETE ON trail"
        " FOR EACH ROW EXECUTE FUNCTION refuse_to_delete_what_is_young()"
    ),
    sql.SQL(
        "CREATE OR REPLACE TRIGGER trail_is_only_added_to BEFORE UPDATE OR TRUNCATE ON trail"
        " FOR EACH STATEMENT EXECUTE FUNCTION refuse_to_change()"
    ),
    sql.SQL(
        "CREATE OR REPLACE FUNCTION forget_what_is_old("
        "OUT entries bigint, OUT marks_again bigint, OUT refused bigint)"
        " LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$"
        " DECLARE name text; count bigint; BEGIN"
        " DELETE FROM trail WHERE at < now() - make_interval(days => {trail});"
        " GET DIAGNOSTICS entries = ROW_COUNT;"
        " DELETE FROM marks WHERE path LIKE '%/again:%' AND at < now() - make_interval(days => {again});"
        " GET DIAGNOSTICS marks_again = ROW_COUNT;"
        " refused := 0;"
        " FOR name IN SELECT table_name FROM information_schema.columns WHERE table_schema = current_schema()"
        r" AND table_name LIKE '%\_refused' AND column_name = 'refused_at' LOOP"
        " EXECUTE format('DELETE FROM %I WHERE refused_at < now() - make_interval(days => {refused})', name);"
        " GET DIAGNOSTICS count = ROW_COUNT; refused := refused + count;"
        " END LOOP; END $$"
    ).format(trail=sql.Literal(TRAIL_DAYS), again=sql.Literal(AGAIN_DAYS), refused=sql.Literal(REFUSED_DAYS)),
)
"""`sluice.commands.publish` runs each statement once, after those of trail and ledger."""


def delete_expired(connection: psycopg.Connection[Any]) -> int:
    """Delete the rows that are older than their retention; return their number."""
    row = connection.execute("SELECT entries + marks_again + refused FROM forget_what_is_old()").fetchone()
    return 0 if row is None else int(row[0])
