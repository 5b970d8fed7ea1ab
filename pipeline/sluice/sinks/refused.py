"""Finds the rows that PostgreSQL refuses, so that they can go to quarantine.

One such row makes PostgreSQL refuse the whole batch, and the error does not name the row.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import psycopg
import pyarrow as pa

from sluice.records import lineage

if TYPE_CHECKING:
    from sluice.api.sink import Rows

REFUSED = (psycopg.DataError, psycopg.IntegrityError, psycopg.errors.ProgramLimitExceeded)
"""PostgreSQL's errors about a value: out of range, no JSON or UUID, against a constraint, or too
long for an index.
"""


class BatchRefusedError(Exception):
    """PostgreSQL refuses a batch, but none of its rows can be set aside."""


def find_refused(
    rows: Sequence[int],
    write: Callable[[Sequence[int]], None],
    refused: tuple[type[Exception], ...] = REFUSED,
) -> dict[int, str]:
    """Return the rows that a database refuses although it accepts all others, with reasons.

    `write` writes the given rows wholly or not at all, or raises one of the errors `refused`. It
    is called with halves of halves.
    """
    try:
        write(rows)
    except refused as error:
        if len(rows) == 1:
            return {rows[0]: str(error).partition("\n")[0]}
        middle = len(rows) // 2
        return find_refused(rows[:middle], write, refused) | find_refused(rows[middle:], write, refused)
    return {}


def without_refused(
    refused: Mapping[int, str],
    good: pa.Table,
    rows: "Rows",
    remake: Callable[[Sequence[str]], pa.Table],
) -> pa.Table:
    """Return the rows of a refused batch, with a reason for each row that PostgreSQL refuses.

    `refused` are the rows that the ledger found, with reasons. `good` are the rows without the full
    lineage, and `rows` the same rows for the sink. `remake` makes the rows from the named source
    places again, with their full lineage.
    """
    places = good.column(lineage.FROM).to_pylist()
    why = {(places[row], rows.origins[row]): reason for row, reason in refused.items()}
    remade = remake(sorted({place for place, _ in why}))
    reasons = remade.column(lineage.REASON).to_pylist()
    names = zip(
        remade.column(lineage.FROM).to_pylist(), remade.column(lineage.ORIGIN).to_pylist(), strict=True
    )
    refusals = {
        row: f"PostgreSQL refuses it: {why[name]}"
        for row, name in enumerate(names)
        if name in why and reasons[row] is None
    }
    if not refusals:
        answers = ", ".join(why.values())
        effect = f"no record can be set aside: {answers}" if answers else "it accepts each record alone"
        message = f"PostgreSQL refuses the batch, but {effect}"
        raise BatchRefusedError(message)
    return remade.set_column(
        remade.column_names.index(lineage.REASON),
        lineage.REASON,
        pa.array([refusals.get(row, reason) for row, reason in enumerate(reasons)], pa.string()),
    )
