"""Lineage: the origin and path of each record, which Sluice adds around a tier's transform.

Transforms pass the column `lineage` on and need not know its content (decision 2).
"""

import inspect
import operator
import re
from collections.abc import Callable, Collection, Iterator
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 — what everyone calls it

from sluice.api import grouping
from sluice.api.declarations import DeclarationError, Stream, Tier
from sluice.api.lineage_header import HEADER, WORDS
from sluice.api.origins import AGAIN, REPLAY
from sluice.api.sink import Sink
from sluice.records import formats

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
"""The longest key of a table; PostgreSQL's indexes accept hardly more. Unit: bytes."""
WARM_UP = ".warm-up"
"""The suffix of the streams that a warm-up writes; no process reads them."""


def word(name: str) -> "Column":
    """Return one word of an incoming record's lineage, or null if the record lacks it.

    Former versions wrote a header for each word. This uses only functions that Spark generates code
    for. Spark would interpret a function with a lambda, and all its arguments, record by record.
    """
    first = F.get("headers", F.lit(0))
    packed = F.coalesce(F.when(first["key"] == HEADER, first["value"].cast("string")), _header(HEADER))
    part = F.split_part(packed, F.lit(" "), F.lit(WORDS.index(name) + 1))
    return F.coalesce(F.nullif(part, F.lit("")), _header(name))


def _header(name: str) -> "Column":
    """Return one header of an incoming record as text, or null if the record lacks the header."""
    at = F.nullif(F.array_position(F.col("headers.key"), name), F.lit(0)).cast("int")
    return F.try_element_at(F.col("headers.value"), at).cast("string")


def incoming(records: "DataFrame", tier: Tier) -> "DataFrame":
    """Turn Kafka's records (with `includeHeaders`) into business columns and `lineage`."""
    position = F.concat_ws(":", "partition", "offset")
    own = F.col("partition").cast("string")
    outside = tier.inputs[0].columns is None
    origin_column = position if outside else F.coalesce(word("origin"), position)
    if others := [stream.name for stream in tier.inputs[1:]]:
        # records and paths of different inputs must have different names
        other = F.when(F.col("topic").isin(others), F.col("topic"))
        own = F.concat_ws(":", other, own)
        origin_column = (
            F.concat_ws("/", other, origin_column) if outside else F.concat_ws("&", origin_column, other)
        )
    path = own if outside else F.concat_ws("/", word("path"), own)
    arrived = F.unix_millis("timestamp").cast("string")
    t0 = arrived if outside else F.coalesce(word("t0"), arrived)
    place = F.concat(F.col("topic"), F.lit("/"), position)
    parts = {"stream": F.col("topic"), "partition": F.col("partition")}
    return _read(records, tier, {"origin": origin_column, "path": path, "from": place, "t0": t0, **parts})


def reprocessed(records: "DataFrame", tier: Tier) -> "DataFrame":
    """Turn records that the tier put into quarantine into business columns and `lineage`.

    Each record keeps its origin, gets its own path and arrives now. The path contains the origin,
    so no other record is on that path, however often the record is reprocessed.
    """
    again = F.concat(F.lit(f"/{AGAIN}:"), word("origin"))
    path = F.when(F.endswith(word("path"), again), word("path")).otherwise(F.concat(word("path"), again))
    stream, partition = (F.regexp_extract(word("from"), r"^(.*)/(\d+):\d+$", group) for group in (1, 2))
    parts = {"stream": stream, "partition": partition.cast("int")}
    now = F.unix_millis(F.current_timestamp()).cast("string")
    return _read(
        records, tier, {"origin": word("origin"), "path": path, "from": word("from"), "t0": now, **parts}
    )


def quarantined_by(tier: Tier) -> "Column":
    """Tell whether this tier, or a replay of it, put a record into quarantine.

    Other readers of the same stream use the same quarantine.
    """
    return word("by").rlike(rf"^{re.escape(tier.name)}({re.escape(REPLAY)}\d+)?/")


def _read(records: "DataFrame", tier: Tier, named: "dict[str, Column]") -> "DataFrame":
    """Parse the records, and add the column `lineage`."""
    rounds_by_stream = [rounds(named["path"], stream) for stream in tier.inputs if stream.rounds]
    round_field = [reduce(operator.add, rounds_by_stream).alias("round")] if rounds_by_stream else []
    fields = [column.alias(name) for name, column in named.items()]
    lineage = (*fields, F.col("key"), F.col("value"), *round_field)
    return formats.decoded(records, tier.inputs[0], lineage, COLUMN)


def transformed(
    records: "DataFrame", tier: Tier, read: "Callable[[DataFrame, Tier], DataFrame]" = incoming
) -> "DataFrame":
    """Run the tier's transform on the records that `read` returns, and check the result.

    Raise DeclarationError if the result lacks a column.
    """
    result = returned(tier, read(records, tier))
    check_columns(result, tier)
    return result


def returned(tier: Tier, *inputs: "DataFrame") -> "DataFrame":
    """Run the tier's transform.

    Raise DeclarationError if the transform takes other arguments, or returns no DataFrame.
    """
    try:
        inspect.signature(tier.transform).bind(*inputs)
    except TypeError as error:
        gets = (
            "one DataFrame with the records of all inputs"
            if tier.state is None
            else f"one DataFrame for each input: {', '.join(stream.name for stream in tier.inputs)}"
        )
        message = f'tier "{tier.name}": the transform has other parameters ({error}); it gets {gets}'
        raise DeclarationError(message) from error
    result = tier.transform(*inputs)
    if not hasattr(result, "columns"):
        message = f'tier "{tier.name}": the transform returned {type(result).__name__}; return a DataFrame'
        raise DeclarationError(message)
    return result


def check_columns(result: "DataFrame", tier: Tier) -> None:
    """Refuse a result that lacks the lineage, or a column that an output needs."""
    if COLUMN not in result.columns:
        message = (
            f'tier "{tier.name}": the transform dropped the column "{COLUMN}"; '
            f'select "{COLUMN}", unchanged, with the other columns'
        )
        raise DeclarationError(message)
    for stream in tier.outputs:
        if missing := set(grouping.columns(stream.grouping)) - set(result.columns):
            message = (
                f'tier "{tier.name}": the grouping of "{stream.name}" needs {", ".join(sorted(missing))}, '
                f"but the transform returns {', '.join(business(result, tier))}; return these columns, too"
            )
            raise DeclarationError(message)
    if len(tier.outputs) > 1 and TO not in result.columns:
        names = ", ".join(stream.name for stream in tier.outputs)
        message = (
            f'tier "{tier.name}": the tier has several outputs; '
            f'return a column "{TO}" that names one of {names}'
        )
        raise DeclarationError(message)


def business(result: "DataFrame", tier: Tier) -> list[str]:
    """Return the names of the business columns: all but Sluice's own."""
    others = {COLUMN, REASON, INDEX} | ({TO} if len(tier.outputs) > 1 else set())
    return [name for name in result.columns if name not in others]


def origin(result: "DataFrame") -> "Column":
    """Return the origin of a result row, with the index if one record became several."""
    input_origin = F.col(COLUMN)["origin"]
    return (
        F.concat_ws(":", input_origin, F.col(INDEX).cast("string"))
        if INDEX in result.columns
        else input_origin
    )


def rounds(path: "Column", stream: Stream) -> "Column":
    """Return how often a record came in by a stream that leads back.

    Such a stream is never the first input of a tier, so the path contains its name.
    """
    return F.regexp_count(path, F.lit(f"(^|/){re.escape(stream.name)}:"))


def _unfit(result: "DataFrame", tier: Tier) -> "Column":
    """Return why a row cannot be written, or null.

    The reason is the transform's own, or a value that would make PostgreSQL refuse the whole batch.
    """
    nul = F.char(F.lit(0))
    kinds = result.select(*business(result, tier)).dtypes
    texts = [name for name, kind in kinds if kind.startswith("string")]
    times = [name for name, kind in kinds if kind == "date" or kind.startswith("timestamp")]
    reasons = [
        *formats.unreadable(tier, COLUMN),
        *([F.col(REASON)] if REASON in result.columns else []),
        *(
            F.when(
                F.col(name).contains(nul),
                F.lit(f"{name} contains the character NUL, which PostgreSQL does not allow in texts"),
            )
            for name in texts
        ),
        *(F.when(~F.is_valid_utf8(name), F.lit(f"{name} is not valid UTF-8")) for name in texts),
        *(
            F.when(~F.year(name).between(1, 9999), F.lit(f"{name} is before the year 1 or after 9999"))
            for name in times
        ),
        *(reason for sink in tier.sinks if sink.keys for reason in _unfit_key(sink)),
    ]
    return F.coalesce(*reasons) if reasons else F.lit(None).cast("string")


def _unfit_key(sink: Sink) -> "Iterator[Column]":
    """Return why the key of a row cannot be written into a table, or null."""
    for name in sink.keys:
        yield F.when(F.col(name).isNull(), F.lit(f"{name} is null, but is part of the key of {sink.name}"))
    length = F.octet_length(F.concat_ws("", *(F.col(name).cast("string") for name in sink.keys)))
    yield F.when(
        length > KEY_BYTES,
        F.lit(f"{', '.join(sink.keys)}: the key is too long; the limit is {KEY_BYTES} bytes"),
    )


def collected(result: "DataFrame", tier: Tier, whole: Collection[str] = ()) -> "DataFrame":
    """Turn a transform's result into the columns that the writer of a sink needs.

    Only bad rows, and rows from the places `whole`, keep their whole lineage.
    """
    reason = _unfit(result, tier)
    is_whole = reason.isNotNull() | F.col(COLUMN)["from"].isin(*whole) if whole else reason.isNotNull()
    return result.select(
        *business(result, tier),
        origin(result).alias(ORIGIN),
        F.col(COLUMN)["path"].alias(PATH),
        F.col(COLUMN)["from"].alias(FROM),
        F.col(COLUMN)["t0"].cast("bigint").alias(ARRIVED),
        reason.alias(REASON),
        # field by field: Arrow accepts no null for a struct whose fields cannot be null
        F.struct(
            *(
                F.when(is_whole, F.col(COLUMN)[name]).alias(name)
                for name in ("origin", "path", "from", "t0", "stream", "partition", "key", "value")
            )
        ).alias(COLUMN),
    )
