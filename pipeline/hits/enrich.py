"""The tier `enrich`: adds the campaign of the ad to each hit.

The campaigns come from a small table that is part of the pipeline's code.
"""

from importlib.resources import files
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 — the usual alias in Spark code

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

UNKNOWN = "unknown"


def campaigns() -> pa.Table:
    """Return the columns `ad` and `campaign` of all booked ads.

    An Arrow table becomes a local relation, so Spark needs no job to read it.
    """
    lines = files(__package__).joinpath("campaigns.csv").read_text().splitlines()[1:]
    ads, ad_campaigns = zip(*(line.split(",") for line in lines), strict=True)
    return pa.table({"ad": ads, "campaign": ad_campaigns})


def with_campaign(hits: "DataFrame") -> "DataFrame":
    """Add the campaign; `unknown` for an ad that is not booked."""
    booked_ads = hits.sparkSession.createDataFrame(campaigns())
    joined = hits.join(F.broadcast(booked_ads), "ad", "left")
    return joined.select(
        "id", "user", "ad", "kind", "at", F.coalesce("campaign", F.lit(UNKNOWN)).alias("campaign"), "lineage"
    )
