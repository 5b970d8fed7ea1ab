"""Joins for transforms of tiers with state; records without a partner are counted (decision 111).

Spark does not report which rows of an inner join found no partner. So Sluice makes each join a full
outer join, which returns every such row once, when its time is over. Executors count the input
records among the rows that the declared join leaves out, and drop these rows.
"""

from functools import reduce
from itertools import count
from operator import or_
from typing import TYPE_CHECKING, Literal

from pyspark.sql import functions as F  # noqa: N812 — what everyone calls it

from sluice.api.declarations import DeclarationError
from sluice.records.state_inputs import COUNTED, DELAY, TIME, UNMATCHED, has_input_records, has_joined_rows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

How = Literal["inner", "left", "right"]
JOINED_TIME = "joined_time"
_NUMBERS = count()
"""Spark refuses two counts of one name."""


def joined(
    left: "DataFrame", right: "DataFrame", on: "Column", *, within: tuple[int, int], how: How
) -> "DataFrame":
    """Join two inputs where `on` holds and the right row's time is `within` these seconds after the
    left row's time: at least `within[0]`, at most `within[1]`.

    The state keeps a left row `within[1]` seconds and a right row `-within[0]` seconds, as with a
    TTL. Return the columns of both sides, and `joined_time`: the later time of both. A side may be
    the result of a join, too, with its `joined_time`, or of windows, with a column `time`. The
    column `unmatched` is always false; transforms for former versions select it. Raise
    DeclarationError for wrong arguments.
    """
    if how not in {"inner", "left", "right"}:
        message = f"joined: how={how!r} is unknown; use inner, left or right"
        raise DeclarationError(message)
    if within[0] > within[1]:
        message = (
            f"joined: within={within!r} matches no records; "
            "give the smaller number of seconds first, such as (0, 60)"
        )
        raise DeclarationError(message)
    left, left_time = _with_time(left)
    right, right_time = _with_time(right)
    earliest, latest = (left_time + F.expr(f"INTERVAL {seconds} SECONDS") for seconds in within)
    near = (right_time >= earliest) & (right_time <= latest)
    sides = (("left", left, right_time.isNull()), ("right", right, left_time.isNull()))
    left_out = [(rows, is_alone) for side, rows, is_alone in sides if side != how]
    are_records = [is_alone for rows, is_alone in left_out if has_input_records(rows)]
    counted = F.count_if(reduce(or_, are_records, F.lit(False))).alias(UNMATCHED)
    # without the last part, Spark's joins of streams find null equal to null
    condition = on & near & on.isNotNull()
    rows = left.join(right, condition, "full_outer").observe(f"{COUNTED}{next(_NUMBERS)}", counted)
    # the filter is above the count: next to the join, Spark would make an inner join of it
    matched = rows.where(~reduce(or_, (is_alone for _, is_alone in left_out)))
    delay = next((column.metadata for column in left.schema if DELAY in column.metadata), None)
    later = F.greatest(left_time, right_time).alias(JOINED_TIME, metadata=delay)
    earlier_joins = [time for rows, time in ((left, left_time), (right, right_time)) if _is_joined(rows)]
    return matched.select("*", later, F.lit(False).alias(UNMATCHED)).drop(*earlier_joins)


def _is_joined(rows: "DataFrame") -> bool:
    return any(column.name == JOINED_TIME and DELAY in column.metadata for column in rows.schema)


def _with_time(rows: "DataFrame") -> "tuple[DataFrame, Column]":
    """Return the rows of a side and their time; DeclarationError if they have none.

    Spark takes one time in a step with state, so a joined row loses the times of its sides.
    """
    if _is_joined(rows):
        return rows.drop(TIME, UNMATCHED), rows[JOINED_TIME]
    if TIME not in rows.columns or has_joined_rows(rows):
        message = (
            f"joined: one side ({', '.join(rows.columns)}) lacks the time of its rows; "
            f'keep "{TIME}" of an input, "{JOINED_TIME}" of a join, '
            f'and F.window_time("window").alias("{TIME}") of windows'
        )
        raise DeclarationError(message)
    return rows.drop(UNMATCHED), rows[TIME]
