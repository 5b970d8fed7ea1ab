"""Entry: what comes in is checked here, once, so that every later tier can rely on it. Bad records get a reason and go to quarantine."""

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 — what everyone calls it

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

KINDS = ("view", "click", "buy")
LARGEST = 64 * 1024
"""Bytes of one record. A hit is a few hundred; more is a mistake or an attack."""
AHEAD_MS = 3_600_000
"""How far a sender's clock may be ahead."""
TEXTS = ("id", "user", "ad", "kind")


def checked(raw: "DataFrame") -> "DataFrame":
    """Parse a hit, lower the case of its kind, and give a reason where it is none."""
    small = F.length("lineage.value") <= LARGEST
    parsed = raw.withColumn("hit", F.when(small, F.try_parse_json("value")))
    typed = parsed.withColumn("shape", F.schema_of_variant("hit"))
    fields = typed.select(
        *[F.try_variant_get("hit", f"$.{name}", "string").alias(name) for name in TEXTS],
        F.try_variant_get("hit", "$.at", "bigint").alias("at"),
        F.col("shape"),
        F.length("lineage.value").alias("bytes"),
        "lineage",
    ).withColumn("kind", F.lower("kind"))
    return fields.select(*TEXTS, "at", _reason().alias("reason"), "lineage")


def _reason() -> "Column":
    shape = F.col("shape")
    reason = F.when(
        F.col("bytes") > LARGEST,
        F.concat(F.lit(f"oversized: at most {LARGEST} bytes, this has "), F.col("bytes")),
    )
    reason = reason.when(shape.isNull(), F.lit("broken JSON"))
    reason = reason.when(
        ~shape.startswith("OBJECT<"), F.concat(F.lit("not a JSON object but "), F.lower(shape))
    )
    for name in TEXTS:
        reason = reason.when(
            ~_has(name, "STRING") | F.col(name).isNull(), F.lit(f"wrong type: {name} must be text")
        )
    reason = reason.when(
        ~_has("at", "BIGINT") | F.col("at").isNull(),
        F.lit("wrong type: at must be a whole number of milliseconds"),
    )
    reason = reason.when(F.col("at") < 0, F.lit("at is before 1970"))
    reason = reason.when(
        ~F.col("kind").isin(*KINDS), F.concat(F.lit("unknown kind: "), F.substring("kind", 1, 40))
    )
    # against the time of arrival, not now: a replay has to get the same answer
    return reason.when(
        F.col("at") > F.col("lineage.t0").cast("bigint") + AHEAD_MS,
        F.lit("at is more than 1 hour in the future"),
    )


def _has(name: str, kind: str) -> "Column":
    return F.coalesce(F.col("shape").rlike(rf"[<\s]{name}: {kind}[,>]"), F.lit(False))
