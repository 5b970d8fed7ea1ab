"""Outbound: every hit exactly once in PostgreSQL, and the same rows by hour in the archive that batch jobs read."""

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 — what everyone calls it

from sluice import Once

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DELIVERED = Once(
    "delivered",
    {"id": "text", "user": "text", "ad": "text", "campaign": "text", "kind": "text", "at": "timestamptz"},
    stamp="delivered_at",
    archive="hits",
)


def deliverable(hits: "DataFrame") -> "DataFrame":
    """Give the columns their final types."""
    return hits.select(
        "id", "user", "ad", "campaign", "kind", F.timestamp_millis("at").alias("at"), "lineage"
    )
