"""Joins of two inputs of a tier with state: called by transforms. What finds no partner is counted, whatever the kind of join.

Spark keeps to itself which records of an inner join went away without a partner. So each join is made as a full outer one, which gives
every such record once, when its time is over; those that the join leaves out are marked, and the driver counts them, unwritten.
"""

from typing import TYPE_CHECKING, Literal

from pyspark.sql import functions as F  # noqa: N812 — what everyone calls it

from sluice.api.declarations import DeclarationError
from sluice.records.state_inputs import TIME, UNMATCHED

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

How = Literal["inner", "left", "right"]


def joined(
    left: "DataFrame", right: "DataFrame", on: "Column", *, within: tuple[int, int], how: How
) -> "DataFrame":
    """Join two inputs where `on` holds and the right record happened so many seconds after the left one: from `within[0]` to `within[1]`.

    Returns the columns of both, and `unmatched`, which the transform has to keep: true for a record that the join leaves out.
    """
    if how not in {"inner", "left", "right"}:
        message = f"joined: how={how!r}; it is inner, left or right"
        raise DeclarationError(message)
    if within[0] > within[1]:
        message = f"joined: within={within!r} holds for no two records; give the smaller number of seconds first, such as (0, 60)"
        raise DeclarationError(message)
    if UNMATCHED in (*left.columns, *right.columns):
        message = "joined: one of its sides is a join already; a tier joins two inputs, once"
        raise DeclarationError(message)
    earliest, latest = (left[TIME] + F.expr(f"INTERVAL {seconds} SECONDS") for seconds in within)
    near = (right[TIME] >= earliest) & (right[TIME] <= latest)
    alone = {"left": right[TIME].isNull(), "right": left[TIME].isNull()}
    left_out = {"inner": alone["left"] | alone["right"], "left": alone["right"], "right": alone["left"]}
    return left.join(right, on & near, "full_outer").withColumn(UNMATCHED, left_out[how])
