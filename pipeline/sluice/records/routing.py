"""Routing: the stream, the partition and the headers of each record that a transform returns."""

from collections.abc import Callable, Mapping
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 — what everyone calls it

from sluice.api import grouping
from sluice.api.column_types import columns as columns_of
from sluice.api.declarations import QUARANTINE, Stream, Tier
from sluice.api.lineage_header import HEADER, WORDS
from sluice.records import formats
from sluice.records.lineage import COLUMN, REASON, TO, business, origin, rounds

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

COPY = "_copy"
KEY, VALUE, PARTITION = "_key", "_value", "_partition"
"""The columns with the record that the stream of a tier with state gets of a row."""


def outgoing(  # noqa: PLR0913 - the parts of a tier's output
    result: "DataFrame",
    tier: Tier,
    by: str,
    partitions: dict[str, int],
    *,
    packed: bool = True,
    suffix: str = "",
) -> "DataFrame":
    """Turn a transform's result into Kafka records: topic, key, value, partition, headers.

    The lineage is one header, or without `packed` the five of former versions.

    `suffix` is appended to the names of the streams. It does not change the code that Spark
    generates, so the real run uses the code that a warm-up compiled.
    """
    name = origin(result)
    result, values = formats.encoded(result, tier, business(result, tier))
    lineage = F.col(COLUMN)
    reason = _first(_known_reasons(result, tier), _wrong_ways(tier, partitions), _unfit(tier, values))
    bad = reason.isNotNull()
    if any(isinstance(stream.grouping, grouping.All) for stream in tier.outputs):
        copies = _chosen(tier, lambda stream: _copies(stream, partitions[stream.name]))
        result = result.withColumn(COPY, F.explode(F.when(bad, _copies(None, 1)).otherwise(copies)))
        name = F.concat_ws(":", name, F.when(~bad, _chosen(tier, _copy)))
    quarantine = F.concat(lineage["stream"], F.lit(QUARANTINE + suffix))
    count = min(partitions[stream.quarantine] for stream in tier.inputs)
    words = {
        "origin": F.when(bad, lineage["origin"]).otherwise(name),
        "path": lineage["path"],
        "from": lineage["from"],
        "by": F.lit(by),
        "t0": lineage["t0"],
    }
    headers = _headers(words, packed=packed)
    return result.select(
        F.when(bad, quarantine)
        .otherwise(_chosen(tier, lambda stream: F.lit(stream.name + suffix)))
        .alias("topic"),
        F.when(bad, lineage["key"])
        .otherwise(_chosen(tier, lambda stream: _key(stream, lineage["key"])))
        .alias("key"),
        F.when(bad, lineage["value"])
        .otherwise(_chosen(tier, lambda stream: values[stream.name].value))
        .alias("value"),
        F.when(bad, F.pmod(lineage["partition"], F.lit(count)))
        .otherwise(_chosen(tier, lambda stream: _partition(stream, origin(result), partitions[stream.name])))
        .cast("int")
        .alias("partition"),
        F.when(bad, F.array(*headers, _entry("reason", reason)))
        .otherwise(F.array(*headers))
        .alias("headers"),
    )


def with_records(rows: "DataFrame", tier: Tier, partitions: Mapping[str, int]) -> "DataFrame":
    """Add to each row of a tier with state the record that its stream gets of the row.

    The value is null if the stream's format has no bytes for the row.
    """
    (stream,) = tier.outputs
    names = rows.columns
    written, values = formats.encoded(
        rows, tier, names if stream.columns is None else [*columns_of(stream.columns)]
    )
    return written.select(
        *names,
        _key(stream, F.lit(None)).cast("binary").alias(KEY),
        values[stream.name].value.cast("binary").alias(VALUE),
        _partition(stream, F.lit(None), partitions[stream.name]).cast("int").alias(PARTITION),
    )


def between(result: "DataFrame", begins: Mapping[str, int], ends: Mapping[str, int] | None) -> "DataFrame":
    """Return the rows whose input record lies between these offsets, by partition of the input.

    A partition without an offset counts from 0. Without `ends`, there is no upper limit.
    """
    place, offset = (F.regexp_extract(F.col(COLUMN)["from"], r"^(.*):(\d+)$", group) for group in (1, 2))
    offset = offset.cast("bigint")
    rows = result.where(offset >= _at(place, begins))
    return rows if ends is None else rows.where(offset < _at(place, ends))


def _at(place: "Column", positions: Mapping[str, int]) -> "Column":
    items = [item for position in positions.items() for item in map(F.lit, position)]
    return F.coalesce(F.try_element_at(F.create_map(*items), place), F.lit(0)) if items else F.lit(0)


def _chosen(tier: Tier, column_of: "Callable[[Stream], Column]") -> "Column":
    """Return, for each record, the column that `column_of` returns for the record's stream."""
    first, *others = tier.outputs
    return reduce(
        lambda chosen, stream: F.when(F.col(TO) == stream.name, column_of(stream)).otherwise(chosen),
        others,
        column_of(first),
    )


def with_reason(result: "DataFrame", tier: Tier) -> "DataFrame":
    """Return a transform's result with the reason why a record goes to quarantine, or null.

    The reasons that depend on partitions and rounds are left out.
    """
    reasons = _known_reasons(result, tier)
    written, values = formats.encoded(result, tier, business(result, tier))
    return written.withColumn(REASON, _first(reasons, _unfit(tier, values)))


def _first(*reasons: "list[Column]") -> "Column":
    every = [reason for some in reasons for reason in some]
    return F.coalesce(*every) if every else F.lit(None).cast("string")


def _known_reasons(result: "DataFrame", tier: Tier) -> "list[Column]":
    """Return why the record could not be read, and the transform's own reason."""
    return formats.unreadable(tier, COLUMN) + ([F.col(REASON)] if REASON in result.columns else [])


def _unfit(tier: Tier, values: "Mapping[str, formats.Written]") -> "list[Column]":
    """Return why the record does not fit the schema of the stream that it goes to."""
    return [
        F.when(_goes_to(stream, tier), reason)
        for stream in tier.outputs
        if (reason := values[stream.name].unfit) is not None
    ]


def _goes_to(stream: Stream, tier: Tier) -> "Column":
    return F.col(TO) == stream.name if len(tier.outputs) > 1 else F.lit(True)


def _wrong_ways(tier: Tier, partitions: dict[str, int]) -> "list[Column]":
    """Return why a record has no valid output stream or partition, or no round left."""
    reasons: list[Column] = []
    if len(tier.outputs) > 1:
        names = [stream.name for stream in tier.outputs]
        is_output = F.coalesce(F.col(TO).isin(names), F.lit(False))
        text = F.concat(
            F.lit(f'column "{TO}" names no output of the tier: '), F.coalesce(F.col(TO), F.lit("null"))
        )
        reasons.append(F.when(~is_output, text))
    for stream in tier.outputs:
        goes_here = _goes_to(stream, tier)
        if isinstance(stream.grouping, grouping.Direct):
            count, partition = partitions[stream.name], F.col(stream.grouping.column)
            is_partition = F.coalesce(partition.between(0, count - 1), F.lit(False))
            text = F.concat(
                F.lit(f"{stream.name} has the partitions 0 to {count - 1}, but the record names partition "),
                F.coalesce(partition.cast("string"), F.lit("null")),
            )
            reasons.append(F.when(goes_here & ~is_partition, text))
        if stream.rounds:
            no_round_left = rounds(F.col(COLUMN)["path"], stream) >= stream.rounds
            text = F.lit(f"the record came back on {stream.name} {stream.rounds} times, which is the limit")
            reasons.append(F.when(goes_here & no_round_left, text))
    return reasons


def _key(stream: Stream, of_input: "Column") -> "Column":
    """Return the key of a record; `of_input` is that of its input record."""
    match stream.grouping:
        case grouping.Fields((name,)):
            return F.col(name).cast("string").cast("binary")
        case grouping.Fields(names):
            return F.to_json(F.struct(*names)).cast("binary")
        case _:
            return of_input


def _partition(stream: Stream, origin: "Column", count: int) -> "Column":
    match stream.grouping:
        case grouping.Local():
            return F.pmod(F.col(COLUMN)["partition"], F.lit(count))
        case grouping.Shuffle():
            return F.pmod(F.hash(origin), F.lit(count))
        case grouping.Fields(names):
            return F.pmod(F.hash(*names), F.lit(count))
        case grouping.All():
            return F.col(COPY)
        case grouping.Global():
            return F.lit(0)
        case grouping.Direct(name):
            return F.col(name)


def _copies(stream: Stream | None, count: int) -> "Column":
    everywhere = stream is not None and isinstance(stream.grouping, grouping.All)
    return F.array(*(F.lit(number) for number in range(count if everywhere else 1)))


def _copy(stream: Stream) -> "Column":
    """Return the number of a record's copy, or null if the stream gets one copy."""
    return F.col(COPY) if isinstance(stream.grouping, grouping.All) else F.lit(None).cast("int")


def _headers(words: "Mapping[str, Column]", *, packed: bool) -> "list[Column]":
    """Return the headers that have these words, as `sluice.api.lineage_header` does."""
    if not packed:
        return [_entry(name, words[name]) for name in WORDS]
    first, *others = (words[name] for name in WORDS)
    return [_entry(HEADER, F.concat(first, *(part for word in others for part in (F.lit(" "), word))))]


def _entry(name: str, value: "Column") -> "Column":
    return F.struct(F.lit(name).alias("key"), value.cast("binary").alias("value"))
