"""What Spark's public Python API does not offer for a query: planning without running, and whether
it waits for records.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery


def plan(frame: "DataFrame") -> None:
    """Have Spark plan the query and generate its code, without running it."""
    frame._jdf.queryExecution().toRdd()  # noqa: SLF001 — Python has no public way to plan without running


def is_idle(query: "StreamingQuery") -> bool:
    """Tell whether a micro-batch query waits for records."""
    status = query.status
    return (
        str(status["message"]).startswith("Waiting")
        and not status["isDataAvailable"]
        and not status["isTriggerActive"]
    )
