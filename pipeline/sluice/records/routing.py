"""Where each record that a transform returns goes: its stream, its partition, its headers."""

from collections.abc import Callable, Mapping
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 — what everyone calls it

from sluice.api import grouping
from sluice.api.declarations import QUARANTINE, Stream, Tier
from sluice.records.lineage import COLUMN, REASON, TO, business, origin, rounds

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

COPY = "_copy"
WHOLE = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS][XXX]",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]",
}
"""Times to the microsecond, as they are: Spark would cut them to milliseconds."""


def outgoing(
    made: "DataFrame", tier: Tier, by: str, partitions: dict[str, int], *, suffix: str = ""
) -> "DataFrame":
    """Turn what the transform returned into what Kafka's sink takes: topic, key, value, partition, headers.

    `suffix` follows the names of the streams. It changes no code that Spark generates, so what a warm-up compiled serves the real run.
    """
    came, reason = F.col(COLUMN), _reason(made, tier, partitions)
    bad = reason.isNotNull()
    columns, name = business(made, tier), origin(made)
    if any(isinstance(stream.grouping, grouping.All) for stream in tier.outputs):
        copies = _chosen(tier, lambda stream: _copies(stream, partitions[stream.name]))
        made = made.withColumn(COPY, F.explode(F.when(bad, _copies(None, 1)).otherwise(copies)))
        name = F.concat_ws(":", name, F.when(~bad, _chosen(tier, _copy)))
    quarantine = F.concat(came["stream"], F.lit(QUARANTINE + suffix))
    count = min(partitions[stream.quarantine] for stream in tier.inputs)
    told = [
        _entry("origin", F.when(bad, came["origin"]).otherwise(name)),
        _entry("path", came["path"]),
        _entry("from", came["from"]),
        _entry("by", F.lit(by)),
        _entry("t0", came["t0"]),
    ]
    return made.select(
        F.when(bad, quarantine)
        .otherwise(_chosen(tier, lambda stream: F.lit(stream.name + suffix)))
        .alias("topic"),
        F.when(bad, came["key"]).otherwise(_chosen(tier, _key)).alias("key"),
        F.when(bad, came["value"])
        .otherwise(F.to_json(F.struct(*columns), WHOLE).cast("binary"))
        .alias("value"),
        F.when(bad, F.pmod(came["partition"], F.lit(count)))
        .otherwise(_chosen(tier, lambda stream: _partition(stream, origin(made), partitions[stream.name])))
        .cast("int")
        .alias("partition"),
        F.when(bad, F.array(*told, _entry("reason", reason))).otherwise(F.array(*told)).alias("headers"),
    )


def between(made: "DataFrame", begins: Mapping[str, int], ends: Mapping[str, int] | None) -> "DataFrame":
    """Take the rows that were made of what lies between, by partition of the input; what is not named is 0, no `ends` is no end."""
    place, offset = (F.regexp_extract(F.col(COLUMN)["from"], r"^(.*):(\d+)$", group) for group in (1, 2))
    offset = offset.cast("bigint")
    rows = made.where(offset >= _at(place, begins))
    return rows if ends is None else rows.where(offset < _at(place, ends))


def _at(place: "Column", positions: Mapping[str, int]) -> "Column":
    known = [item for each in positions.items() for item in map(F.lit, each)]
    return F.coalesce(F.try_element_at(F.create_map(*known), place), F.lit(0)) if known else F.lit(0)


def _chosen(tier: Tier, of: "Callable[[Stream], Column]") -> "Column":
    """Say it of the stream that a record goes to."""
    first, *others = tier.outputs
    return reduce(
        lambda chosen, stream: F.when(F.col(TO) == stream.name, of(stream)).otherwise(chosen),
        others,
        of(first),
    )


def _reason(made: "DataFrame", tier: Tier, partitions: dict[str, int]) -> "Column":
    """Say why a record cannot go on: the transform's own reason, or that there is no way to where it should go."""
    found = [F.col(REASON)] if REASON in made.columns else []
    if len(tier.outputs) > 1:
        names = [stream.name for stream in tier.outputs]
        known = F.coalesce(F.col(TO).isin(names), F.lit(False))
        found.append(
            F.when(
                ~known,
                F.concat(F.lit("it goes to no output of the tier: "), F.coalesce(F.col(TO), F.lit("null"))),
            )
        )
    for stream in tier.outputs:
        here = F.col(TO) == stream.name if len(tier.outputs) > 1 else F.lit(True)
        if isinstance(stream.grouping, grouping.Direct):
            count, where = partitions[stream.name], F.col(stream.grouping.column)
            there = F.coalesce(where.between(0, count - 1), F.lit(False))
            said = F.concat(
                F.lit(f"{stream.name} has {count} partitions, from 0 on, and it should go to "),
                F.coalesce(where.cast("string"), F.lit("null")),
            )
            found.append(F.when(here & ~there, said))
        if stream.rounds:
            over = rounds(F.col(COLUMN)["path"], stream) >= stream.rounds
            found.append(
                F.when(
                    here & over,
                    F.lit(
                        f"it has come back on {stream.name} {stream.rounds} times, which is as often as it may"
                    ),
                )
            )
    return F.coalesce(*found) if found else F.lit(None).cast("string")


def _key(stream: Stream) -> "Column":
    match stream.grouping:
        case grouping.Fields((name,)):
            return F.col(name).cast("string").cast("binary")
        case grouping.Fields(names):
            return F.to_json(F.struct(*names)).cast("binary")
        case _:
            return F.col(COLUMN)["key"]


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
    """Tell the copies of a record apart; null where there is but one."""
    return F.col(COPY) if isinstance(stream.grouping, grouping.All) else F.lit(None).cast("int")


def _entry(name: str, value: "Column") -> "Column":
    return F.struct(F.lit(name).alias("key"), value.cast("binary").alias("value"))
