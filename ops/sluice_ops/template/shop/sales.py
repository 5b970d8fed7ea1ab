"""The tier `sales`: adds up the sold pieces of each item in the table `sales`."""

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sluice import Totals

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SALES = Totals("sales", {"item": "text", "orders": "bigint", "pieces": "bigint"}, ("item",), ("orders",))


def sold(orders: "DataFrame") -> "DataFrame":
    """Return what each order adds to the sales of its item."""
    return orders.select(
        "item", F.lit(1).cast("bigint").alias("orders"), F.col("count").alias("pieces"), "lineage"
    )
