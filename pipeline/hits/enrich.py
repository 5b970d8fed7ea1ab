"""Enrich: each hit gets the campaign of its ad, from a small table that is shipped with the pipeline."""

from importlib.resources import files
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 — what everyone calls it

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

UNKNOWN = "unknown"


def campaigns() -> pa.Table:
    """Return `ad` and `campaign` for every ad that is known; as Arrow it becomes a local relation, which needs no job of its own."""
    lines = files(__package__).joinpath("campaigns.csv").read_text().splitlines()[1:]
    ads, booked = zip(*(line.split(",") for line in lines), strict=True)
    return pa.table({"ad": ads, "campaign": booked})


def with_campaign(hits: "DataFrame") -> "DataFrame":
    """Add the campaign; an ad that nobody booked belongs to `unknown`."""
    booked = hits.sparkSession.createDataFrame(campaigns())
    joined = hits.join(F.broadcast(booked), "ad", "left")
    return joined.select(
        "id", "user", "ad", "kind", "at", F.coalesce("campaign", F.lit(UNKNOWN)).alias("campaign"), "lineage"
    )
