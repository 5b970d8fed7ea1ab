"""Where each record came from: put on around a tier's transform, so that transforms need not know of it (decision record 0002)."""

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 — what everyone calls it

from pipeline.declare import QUARANTINE, DeclarationError, Tier

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

COLUMN = "lineage"
REASON = "reason"
INDEX = "index"
ORIGIN = "_origin"
PATH = "_path"
ARRIVED = "_arrived"
WARM_UP = ".warm-up"
"""Ends the names of the streams that a warm-up writes into; nobody reads them."""


def header(name: str) -> "Column":
    """Read one header of an incoming record as text; null where it is absent."""
    found = F.filter(F.col("headers"), lambda entry: entry["key"] == name)
    return F.try_element_at(found, F.lit(1))["value"].cast("string")


def incoming(records: "DataFrame", tier: Tier) -> "DataFrame":
    """Turn what Kafka gives (with `includeHeaders`) into business columns and `lineage`."""
    position = F.concat_ws(":", "partition", "offset")
    own = F.col("partition").cast("string")
    outside = tier.inputs[0].columns is None
    arrived = F.unix_millis("timestamp").cast("string")
    lineage = F.struct(
        (position if outside else F.coalesce(header("origin"), position)).alias("origin"),
        (own if outside else F.concat_ws("/", header("path"), own)).alias("path"),
        F.concat(F.col("topic"), F.lit("/"), position).alias("from"),
        (arrived if outside else F.coalesce(header("t0"), arrived)).alias("t0"),
        F.col("topic").alias("stream"),
        F.col("partition"),
        F.col("key"),
        F.col("value"),
    ).alias(COLUMN)
    columns = tier.inputs[0].columns
    if columns is None:
        return records.select(F.col("value").cast("string").alias("value"), lineage)
    parsed = F.from_json(F.col("value").cast("string"), columns).alias("record")
    return records.select(parsed, lineage).select("record.*", COLUMN)


def transformed(records: "DataFrame", tier: Tier) -> "DataFrame":
    """Run the tier's transform, and check what it returns."""
    made = tier.transform(incoming(records, tier))
    if not hasattr(made, "columns"):
        message = f'tier "{tier.name}": its transform returned {type(made).__name__}; return a DataFrame'
        raise DeclarationError(message)
    if COLUMN not in made.columns:
        message = f'tier "{tier.name}": its transform dropped the column "{COLUMN}"; add "{COLUMN}" to its select, as it came'
        raise DeclarationError(message)
    if tier.grouping is not None and tier.grouping not in made.columns:
        message = f'tier "{tier.name}": grouping names "{tier.grouping}", its transform returns {", ".join(business(made))}'
        raise DeclarationError(message)
    return made


def business(made: "DataFrame") -> list[str]:
    """Name the columns that are the tier's own."""
    return [name for name in made.columns if name not in {COLUMN, REASON, INDEX}]


def origin(made: "DataFrame") -> "Column":
    """Name the raw record that a row was made of, with its index where one record became several."""
    first = F.col(COLUMN)["origin"]
    return F.concat_ws(":", first, F.col(INDEX).cast("string")) if INDEX in made.columns else first


def outgoing(made: "DataFrame", tier: Tier, by: str, partitions: dict[str, int], *, suffix: str = "") -> "DataFrame":
    """Turn what the transform returned into what Kafka's sink takes: topic, key, value, partition, headers.

    `suffix` follows the names of the streams. It changes no code that Spark generates, so what a warm-up compiled serves the real run.
    """
    if tier.output is None:
        message = f'tier "{tier.name}" has no output stream'
        raise DeclarationError(message)
    lineage = F.col(COLUMN)
    bad = F.col(REASON).isNotNull() if REASON in made.columns else F.lit(False)  # noqa: FBT003 — Spark has no keyword
    reason = F.col(REASON) if REASON in made.columns else F.lit(None).cast("string")
    quarantine = F.concat(lineage["stream"], F.lit(QUARANTINE + suffix))
    count = min(partitions[stream.quarantine] for stream in tier.inputs)
    straight = F.pmod(lineage["partition"], F.lit(partitions[tier.output.name]))
    grouped = F.pmod(F.hash(tier.grouping), F.lit(partitions[tier.output.name])) if tier.grouping else straight
    key = F.col(tier.grouping).cast("string").cast("binary") if tier.grouping else lineage["key"]
    return made.select(
        F.when(bad, quarantine).otherwise(F.lit(tier.output.name + suffix)).alias("topic"),
        F.when(bad, lineage["key"]).otherwise(key).alias("key"),
        F.when(bad, lineage["value"]).otherwise(F.to_json(F.struct(*business(made))).cast("binary")).alias("value"),
        F.when(bad, F.pmod(lineage["partition"], F.lit(count))).otherwise(grouped).cast("int").alias("partition"),
        F.filter(
            F.array(
                _entry("origin", origin(made)),
                _entry("path", lineage["path"]),
                _entry("from", lineage["from"]),
                _entry("by", F.lit(by)),
                _entry("t0", lineage["t0"]),
                _entry("reason", reason),
            ),
            lambda entry: entry["value"].isNotNull(),
        ).alias("headers"),
    )


def _entry(name: str, value: "Column") -> "Column":
    return F.struct(F.lit(name).alias("key"), value.cast("binary").alias("value"))


def collected(made: "DataFrame") -> "DataFrame":
    """Turn what the transform returned into what a table's writer takes; only bad rows carry all of their lineage."""
    reason = F.col(REASON) if REASON in made.columns else F.lit(None).cast("string")
    return made.select(
        *business(made),
        origin(made).alias(ORIGIN),
        F.col(COLUMN)["path"].alias(PATH),
        F.col(COLUMN)["t0"].cast("bigint").alias(ARRIVED),
        reason.alias(REASON),
        # field by field: Arrow takes no null for a struct whose fields cannot be null
        F.struct(
            *(F.when(reason.isNotNull(), F.col(COLUMN)[name]).alias(name) for name in ("path", "from", "t0", "stream", "key", "value"))
        ).alias(COLUMN),
    )
