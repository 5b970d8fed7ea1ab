"""Joins of two inputs, for transforms of tiers with state; records without a partner are counted.

Spark does not report which records of an inner join found no partner. So Sluice makes each join a
full outer join, which returns every such record once, when its time is over. A column marks the
records that the declared join leaves out; the driver counts them and does not write them.
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
    """Join two inputs where `on` holds and the right record's time is `within` these seconds after
    the left record's time: at least `within[0]`, at most `within[1]`.

    Return the columns of both inputs, and `unmatched`: true for a record that the join leaves out.
    The transform must keep `unmatched`. Raise DeclarationError for wrong arguments.
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
    if UNMATCHED in (*left.columns, *right.columns):
        message = "joined: one input is already the result of a join; a tier may join two inputs, once"
        raise DeclarationError(message)
    earliest, latest = (left[TIME] + F.expr(f"INTERVAL {seconds} SECONDS") for seconds in within)
    near = (right[TIME] >= earliest) & (right[TIME] <= latest)
    alone = {"left": right[TIME].isNull(), "right": left[TIME].isNull()}
    left_out = {"inner": alone["left"] | alone["right"], "left": alone["right"], "right": alone["left"]}
    return left.join(right, on & near, "full_outer").withColumn(UNMATCHED, left_out[how])
