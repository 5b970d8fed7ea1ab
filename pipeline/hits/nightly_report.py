"""The nightly batch job: kinds of hits per day and campaign, from the archive.

spark-submit starts it on slots that are lent to `batch`. The job may be repeated: each day of the
archive replaces the day's rows in `campaign_daily`. The job finds its services through
SLUICE_ENDPOINTS or SLUICE_HOME, as every process does.
"""

import sys
from typing import TYPE_CHECKING, Any

import psycopg
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 — the usual alias in Spark code

from sluice_ops.model.access import Role
from sluice_ops.site import endpoints

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KINDS = {"views": "view", "clicks": "click", "buys": "buy"}


def per_day(hits: "DataFrame") -> "DataFrame":
    """Count the kinds of hits by campaign and day. The day is the hit's day in UTC."""
    day = F.to_date("at").alias("day")
    sums = [F.sum((F.col("kind") == kind).cast("bigint")).alias(name) for name, kind in KINDS.items()]
    return hits.groupBy(day, "campaign").agg(*sums)


def write(postgres: str, rows: list[tuple[Any, ...]]) -> None:
    """Replace the days that occur in the rows, in one transaction."""
    with psycopg.connect(postgres, connect_timeout=10) as connection, connection.cursor() as cursor:
        cursor.execute("DELETE FROM campaign_daily WHERE day = ANY(%s)", (sorted({row[0] for row in rows}),))
        cursor.executemany(
            "INSERT INTO campaign_daily (day, campaign, views, clicks, buys) VALUES (%s, %s, %s, %s, %s)",
            rows,
        )


def main() -> int:
    site = endpoints.load()
    archive = site.home / "archive" / "hits"
    if not any(archive.glob("hour=*/*.parquet")):
        sys.stdout.write(
            f"nothing to report: {archive} has no files yet; campaign_daily is unchanged; the tier outbound "
            "writes this archive\n"
        )
        return 0
    session = (
        SparkSession.builder.appName("nightly_report")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    try:
        rows = [tuple(row) for row in per_day(session.read.parquet(f"file://{archive}")).collect()]
    finally:
        session.stop()
    write(site.postgres_as(Role.OPERATOR), rows)
    days = sorted({str(row[0]) for row in rows})
    total = sum(sum(row[2:]) for row in rows)
    sys.stdout.write(f"campaign_daily: {len(rows)} rows for {', '.join(days)}, {total} hits in total\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
