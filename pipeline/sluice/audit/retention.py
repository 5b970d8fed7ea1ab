"""For how long the platform's tables keep what nothing else bounds: one function in PostgreSQL, which the audit calls once an hour.

The function deletes as the owner of the tables, and only what is old, so whoever calls it needs no right to delete. The trail refuses to
lose anything younger, whoever asks.
"""

from typing import Any

import psycopg
from psycopg import sql

TRAIL_DAYS = 731
"""Of `trail`: two years."""
REFUSED_DAYS = 90
"""Of each `<name>_refused`: three times as long as a quarantine stream keeps a bad record."""
AGAIN_DAYS = 90
"""Of marks of records that were taken up from quarantine: such a record is no longer in its stream by then, so nobody can replay it. All
other marks are one for each path, and as many as there are partitions: they stay."""
EVERY_SECONDS = 3600.0

STATEMENTS: tuple[sql.SQL | sql.Composed, ...] = (
    sql.SQL(  # marks of before count from here
        "DO $$ BEGIN IF NOT EXISTS (SELECT FROM information_schema.columns WHERE table_schema = current_schema()"
        " AND table_name = 'marks' AND column_name = 'at') THEN"
        " ALTER TABLE marks ADD COLUMN at timestamptz NOT NULL DEFAULT now(); END IF; END $$"
    ),
    sql.SQL(
        "CREATE OR REPLACE FUNCTION refuse_to_delete_what_is_young() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN IF OLD.at < now() - make_interval(days => {}) THEN RETURN OLD; END IF;"
        " RAISE EXCEPTION 'table % is only added to', TG_TABLE_NAME; END $$"
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
        "CREATE OR REPLACE FUNCTION forget_what_is_old(OUT entries bigint, OUT marks_again bigint, OUT refused bigint)"
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
"""`sluice.commands.publish` runs them, after those of the trail and of the ledger."""


def forget(connection: psycopg.Connection[Any]) -> int:
    """Delete what is older than it is kept; return how many rows."""
    row = connection.execute("SELECT entries + marks_again + refused FROM forget_what_is_old()").fetchone()
    return 0 if row is None else int(row[0])
