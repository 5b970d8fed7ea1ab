"""Where each record came from: put on around a tier's transform, so that transforms need not know of it (decision record 0002)."""

import operator
import re
from collections.abc import Callable, Collection
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 — what everyone calls it

from sluice.api import grouping
from sluice.api.declarations import DeclarationError, Stream, Tier
from sluice.api.origins import AGAIN, REPLAY

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

COLUMN = "lineage"
REASON = "reason"
INDEX = "index"
TO = "to"
ORIGIN = "_origin"
FROM = "_from"
PATH = "_path"
ARRIVED = "_arrived"
KEY_BYTES = 2_600
"""An index of PostgreSQL takes hardly more."""
WARM_UP = ".warm-up"
"""Ends the names of the streams that a warm-up writes into; nobody reads them."""


def header(name: str) -> "Column":
    """Read one header of an incoming record as text; null where it is absent.

    In functions that Spark generates code for: one that takes a lambda is interpreted, and all that goes into it, record by record.
    """
    at = F.nullif(F.array_position(F.col("headers.key"), name), F.lit(0)).cast("int")
    return F.try_element_at(F.col("headers.value"), at).cast("string")


def incoming(records: "DataFrame", tier: Tier) -> "DataFrame":
    """Turn what Kafka gives (with `includeHeaders`) into business columns and `lineage`."""
    position = F.concat_ws(":", "partition", "offset")
    own = F.col("partition").cast("string")
    outside = tier.inputs[0].columns is None
    came = position if outside else F.coalesce(header("origin"), position)
    if others := [stream.name for stream in tier.inputs[1:]]:
        # two inputs must not call two records, or two ways, by one name
        other = F.when(F.col("topic").isin(others), F.col("topic"))
        own = F.concat_ws(":", other, own)
        came = F.concat_ws("/", other, came) if outside else F.concat_ws("&", came, other)
    path = own if outside else F.concat_ws("/", header("path"), own)
    arrived = F.unix_millis("timestamp").cast("string")
    t0 = arrived if outside else F.coalesce(header("t0"), arrived)
    place = F.concat(F.col("topic"), F.lit("/"), position)
    parts = {"stream": F.col("topic"), "partition": F.col("partition")}
    return _read(records, tier, {"origin": came, "path": path, "from": place, "t0": t0, **parts})


def taken_up(records: "DataFrame", tier: Tier) -> "DataFrame":
    """Turn what the tier once put into its inputs' quarantine into the same: under the name that it had, on a way of its own, arriving now.

    The name is a part of the way: whatever is taken up before or after it, it is the only one there, however often it is taken up.
    """
    again = F.concat(F.lit(f"/{AGAIN}:"), header("origin"))
    path = F.when(F.endswith(header("path"), again), header("path")).otherwise(
        F.concat(header("path"), again)
    )
    stream, partition = (F.regexp_extract(header("from"), r"^(.*)/(\d+):\d+$", group) for group in (1, 2))
    parts = {"stream": stream, "partition": partition.cast("int")}
    now = F.unix_millis(F.current_timestamp()).cast("string")
    return _read(
        records, tier, {"origin": header("origin"), "path": path, "from": header("from"), "t0": now, **parts}
    )


def set_aside_by(tier: Tier) -> "Column":
    """Tell whether a run of the tier, or a replay of it, has put a record into quarantine: streams may have other readers."""
    return header("by").rlike(rf"^{re.escape(tier.name)}({re.escape(REPLAY)}\d+)?/")


def _read(records: "DataFrame", tier: Tier, named: "dict[str, Column]") -> "DataFrame":
    """Parse the records, and put `lineage` beside what they hold."""
    counted = [rounds(named["path"], stream) for stream in tier.inputs if stream.rounds]
    back = [reduce(operator.add, counted).alias("round")] if counted else []
    fields = [column.alias(name) for name, column in named.items()]
    lineage = F.struct(*fields, F.col("key"), F.col("value"), *back).alias(COLUMN)
    columns = tier.inputs[0].columns
    if columns is None:
        return records.select(F.col("value").cast("string").alias("value"), lineage)
    parsed = F.from_json(F.col("value").cast("string"), columns).alias("record")
    return records.select(parsed, lineage).select("record.*", COLUMN)


def transformed(
    records: "DataFrame", tier: Tier, read: "Callable[[DataFrame, Tier], DataFrame]" = incoming
) -> "DataFrame":
    """Run the tier's transform on what was `read`, and check what it returns."""
    made = tier.transform(read(records, tier))
    if not hasattr(made, "columns"):
        message = f'tier "{tier.name}": its transform returned {type(made).__name__}; return a DataFrame'
        raise DeclarationError(message)
    if COLUMN not in made.columns:
        message = f'tier "{tier.name}": its transform dropped the column "{COLUMN}"; add "{COLUMN}" to its select, as it came'
        raise DeclarationError(message)
    for stream in tier.outputs:
        if missing := set(grouping.columns(stream.grouping)) - set(made.columns):
            names = ", ".join(business(made, tier))
            message = f'tier "{tier.name}": the grouping of "{stream.name}" names {", ".join(sorted(missing))}, its transform returns {names}'
            raise DeclarationError(message)
    if len(tier.outputs) > 1 and TO not in made.columns:
        names = ", ".join(stream.name for stream in tier.outputs)
        message = f'tier "{tier.name}": it has several outputs, so its transform has to return a column "{TO}" that names one of {names}'
        raise DeclarationError(message)
    return made


def business(made: "DataFrame", tier: Tier) -> list[str]:
    """Name the columns that are the tier's own."""
    others = {COLUMN, REASON, INDEX} | ({TO} if len(tier.outputs) > 1 else set())
    return [name for name in made.columns if name not in others]


def origin(made: "DataFrame") -> "Column":
    """Name the raw record that a row was made of, with its index where one record became several."""
    first = F.col(COLUMN)["origin"]
    return F.concat_ws(":", first, F.col(INDEX).cast("string")) if INDEX in made.columns else first


def rounds(path: "Column", stream: Stream) -> "Column":
    """Count how often a record has come in by a stream; never its readers' first input, so the path names it."""
    return F.regexp_count(path, F.lit(f"(^|/){re.escape(stream.name)}:"))


def _unfit(made: "DataFrame", tier: Tier) -> "Column":
    """Say why a row cannot be written: the transform's own reason, or that it would stop the whole batch on its way to PostgreSQL."""
    assert tier.sink is not None  # noqa: S101 — who collects writes into one
    keys = tier.sink.keys
    nul, length = (
        F.char(F.lit(0)),
        F.octet_length(F.concat_ws("", *(F.col(name).cast("string") for name in keys))),
    )
    kinds = made.select(*business(made, tier)).dtypes
    texts = [name for name, kind in kinds if kind.startswith("string")]
    times = [name for name, kind in kinds if kind == "date" or kind.startswith("timestamp")]
    found = [
        *([F.col(REASON)] if REASON in made.columns else []),
        *(
            F.when(
                F.col(name).contains(nul),
                F.lit(f"{name} has a character NUL, which no text in PostgreSQL may have"),
            )
            for name in texts
        ),
        *(F.when(~F.is_valid_utf8(name), F.lit(f"{name} is no text: it is not UTF-8")) for name in texts),
        *(
            F.when(~F.year(name).between(1, 9999), F.lit(f"{name} is before the year 1 or after 9999"))
            for name in times
        ),
        *(
            F.when(
                F.col(name).isNull(), F.lit(f"{name} is null, and rows of {tier.sink.name} are found by it")
            )
            for name in keys
        ),
        *(
            [
                F.when(
                    length > KEY_BYTES,
                    F.lit(f"{', '.join(keys)}: too long, at most {KEY_BYTES} bytes may be a key"),
                )
            ]
            if keys
            else []
        ),
    ]
    return F.coalesce(*found) if found else F.lit(None).cast("string")


def collected(made: "DataFrame", tier: Tier, whole: Collection[str] = ()) -> "DataFrame":
    """Turn what the transform returned into what a table's writer takes; only bad rows, and those from `whole`, carry all their lineage."""
    reason = _unfit(made, tier)
    carries = reason.isNotNull() | F.col(COLUMN)["from"].isin(*whole) if whole else reason.isNotNull()
    return made.select(
        *business(made, tier),
        origin(made).alias(ORIGIN),
        F.col(COLUMN)["path"].alias(PATH),
        F.col(COLUMN)["from"].alias(FROM),
        F.col(COLUMN)["t0"].cast("bigint").alias(ARRIVED),
        reason.alias(REASON),
        # field by field: Arrow takes no null for a struct whose fields cannot be null
        F.struct(
            *(
                F.when(carries, F.col(COLUMN)[name]).alias(name)
                for name in ("origin", "path", "from", "t0", "stream", "partition", "key", "value")
            )
        ).alias(COLUMN),
    )
