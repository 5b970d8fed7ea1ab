"""The tier `entry`: checks records from outside once, so that every later tier can rely on them.

A bad record goes to quarantine with a reason.
"""

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 — the usual alias in Spark code

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

KINDS = ("view", "click", "buy")
MAX_BYTES = 64 * 1024
"""The largest record. A hit has a few hundred bytes; more is a mistake or an attack. Unit: bytes.
"""
MAX_AHEAD_MS = 3_600_000
"""How far a sender's clock may be ahead. Unit: milliseconds."""
TEXT_FIELDS = ("id", "user", "ad", "kind")


def checked(raw: "DataFrame") -> "DataFrame":
    """Parse each record as a hit, write its kind in lower case, and add a reason if it is bad."""
    is_small = F.length("lineage.value") <= MAX_BYTES
    parsed = raw.withColumn("hit", F.when(is_small, F.try_parse_json("value")))
    typed = parsed.withColumn("shape", F.schema_of_variant("hit"))
    fields = typed.select(
        *[F.try_variant_get("hit", f"$.{name}", "string").alias(name) for name in TEXT_FIELDS],
        F.try_variant_get("hit", "$.at", "bigint").alias("at"),
        F.col("shape"),
        F.length("lineage.value").alias("bytes"),
        "lineage",
    ).withColumn("kind", F.lower("kind"))
    return fields.select(*TEXT_FIELDS, "at", _reason().alias("reason"), "lineage")


def _reason() -> "Column":
    shape = F.col("shape")
    reason = F.when(
        F.col("bytes") > MAX_BYTES,
        F.concat(F.lit(f"oversized: at most {MAX_BYTES} bytes, this has "), F.col("bytes")),
    )
    reason = reason.when(shape.isNull(), F.lit("broken JSON"))
    reason = reason.when(
        ~shape.startswith("OBJECT<"), F.concat(F.lit("not a JSON object but "), F.lower(shape))
    )
    for name in TEXT_FIELDS:
        reason = reason.when(
            ~_has_field(name, "STRING") | F.col(name).isNull(), F.lit(f"wrong type: {name} must be text")
        )
    reason = reason.when(
        ~_has_field("at", "BIGINT") | F.col("at").isNull(),
        F.lit("wrong type: at must be a whole number of milliseconds"),
    )
    reason = reason.when(F.col("at") < 0, F.lit("at is before 1970"))
    reason = reason.when(
        ~F.col("kind").isin(*KINDS), F.concat(F.lit("unknown kind: "), F.substring("kind", 1, 40))
    )
    # `at` is compared with the time of arrival, not with now: a replay must get the same result.
    return reason.when(
        F.col("at") > F.col("lineage.t0").cast("bigint") + MAX_AHEAD_MS,
        F.lit("at is more than 1 hour in the future"),
    )


def _has_field(name: str, field_type: str) -> "Column":
    return F.coalesce(F.col("shape").rlike(rf"[<\s]{name}: {field_type}[,>]"), F.lit(False))
