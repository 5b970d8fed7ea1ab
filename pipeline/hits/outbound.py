"""The tier `outbound`: writes every hit exactly once to PostgreSQL, and the same rows to the
archive.

The archive has one folder per hour. Batch jobs read it.
"""

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 — the usual alias in Spark code

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
