"""The tier `counts`: views, clicks and buys per campaign and window of 10 s, added up in
PostgreSQL.
"""

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 — the usual alias in Spark code

from sluice import Totals

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WINDOW_MS = 10_000

CAMPAIGN_COUNTS = Totals(
    "campaign_counts",
    {
        "campaign": "text",
        "window_start": "timestamptz",
        "views": "bigint",
        "clicks": "bigint",
        "buys": "bigint",
    },
    key=("campaign", "window_start"),
    counted=("views", "clicks", "buys"),
)


def per_window(hits: "DataFrame") -> "DataFrame":
    """Return what each hit adds to the counts of its campaign and window."""
    start = F.timestamp_millis(F.col("at") - F.pmod(F.col("at"), F.lit(WINDOW_MS)))
    kinds = {"views": "view", "clicks": "click", "buys": "buy"}
    return hits.select(
        "campaign",
        start.alias("window_start"),
        *[(F.col("kind") == kind).cast("bigint").alias(name) for name, kind in kinds.items()],
        "lineage",
    )
