"""The tier `orders`: parses each record, and sends a bad one to quarantine with a reason."""

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def checked(raw: "DataFrame") -> "DataFrame":
    """Parse each record as an order; `reason` is not null if the record is bad."""
    order = raw.withColumn("order", F.try_parse_json("value"))
    fields = order.select(
        F.try_variant_get("order", "$.id", "string").alias("id"),
        F.try_variant_get("order", "$.item", "string").alias("item"),
        F.try_variant_get("order", "$.count", "bigint").alias("count"),
        "lineage",
    )
    reason = F.when(F.col("id").isNull(), F.lit("id is missing"))
    reason = reason.when(F.col("item").isNull(), F.lit("item is missing"))
    reason = reason.when(F.coalesce(F.col("count"), F.lit(0)) < 1, F.lit("count must be 1 or more"))
    return fields.withColumn("reason", reason)
