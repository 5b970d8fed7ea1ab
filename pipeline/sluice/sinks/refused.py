"""Rows that PostgreSQL does not take: one of them has it refuse a whole batch, and it does not say which one. They are set aside."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import psycopg
import pyarrow as pa

from sluice.records import lineage

if TYPE_CHECKING:
    from sluice.api.sink import Rows
    from sluice.sinks.ledger import Ledger

REFUSED = (psycopg.DataError, psycopg.IntegrityError, psycopg.errors.ProgramLimitExceeded)
"""What it says of a value: out of range for its column, no JSON or no UUID, against a constraint that somebody has put on the table, or too
long for an index."""


class RefusedError(Exception):
    """Rows are refused that cannot be set aside."""


def refused(rows: Sequence[int], write: Callable[[Sequence[int]], None]) -> dict[int, str]:
    """Return which rows are not taken where all others are, and what is said of each; `write` writes some wholly or not at all."""
    try:
        write(rows)
    except REFUSED as error:
        if len(rows) == 1:
            return {rows[0]: str(error).partition("\n")[0]}
        middle = len(rows) // 2
        return refused(rows[:middle], write) | refused(rows[middle:], write)
    return {}


def without_refused(
    ledger: "Ledger", good: pa.Table, found: "Rows", made: Callable[[Sequence[str]], pa.Table]
) -> pa.Table:
    """Return the rows of a batch whose good ones were refused, with a reason for each that cannot be written.

    `made` makes them again, those that are named by where they come from with all of their lineage, which good rows do not carry.
    """
    places = good.column(lineage.FROM).to_pylist()
    why = {(places[row], found.origins[row]): said for row, said in ledger.refused(found).items()}
    rows = made(sorted({place for place, _ in why}))
    reasons = rows.column(lineage.REASON).to_pylist()
    named = zip(rows.column(lineage.FROM).to_pylist(), rows.column(lineage.ORIGIN).to_pylist(), strict=True)
    new = {
        row: f"PostgreSQL refuses it: {why[name]}"
        for row, name in enumerate(named)
        if name in why and reasons[row] is None
    }
    if not new:
        message = f"PostgreSQL refuses the batch, and none of its records: {', '.join(why.values()) or 'it takes each that it is given again'}"
        raise RefusedError(message)
    at = rows.column_names.index(lineage.REASON)
    return rows.set_column(
        at, lineage.REASON, pa.array([new.get(row, known) for row, known in enumerate(reasons)], pa.string())
    )
