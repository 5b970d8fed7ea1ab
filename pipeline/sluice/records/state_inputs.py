"""The inputs of a tier with state: late records and replays are dropped before they reach the state
(decision 16).
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 — what everyone calls it

from sluice.api.declarations import DeclarationError, State, Stream, Tier
from sluice.api.sink import Absorbed
from sluice.records.lineage import COLUMN, incoming, returned
from sluice.records.routing import with_records

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

    from sluice.records.watermark import Watermark

TIME = "time"
NAME = "_origin"
UNMATCHED = "unmatched"
"""The number of input records that a join leaves out (`sluice.records.joins`)."""
COUNTED = "sluice-unmatched-"
"""The names of these counts in Spark's plan begin so."""
APART = 300
"""How much earlier than a record before it in the partition a record may have arrived in the
pipeline. Unit: seconds.
"""
DROPS = "StreamingDeduplicateWithinWatermarkExec"
"""The name of the operator in Spark's plan that drops replays."""
TIMES = "EventTimeWatermarkExec"
"""The name of the operator in Spark's plan that keeps the newest `time` of a batch.

Spark's watermark follows this time after the batch.
"""
STEPS = ("Aggregate", "TransformWithState", "TransformWithStateInPySpark")
"""Operators whose rows change later, unless Spark returns final rows only."""
COUNTS = "CollectMetricsExec"
"""The name of the operator in Spark's plan that counts the records that a join leaves out."""
MULTIPLIES = ("Generate", "Expand")
"""Operators that make several rows of one."""
DELAY = "spark.watermarkDelayMs"
"""Spark's mark of a column that the watermark follows."""
SESSION = "spark.sessionWindow"
"""Spark's mark of a column that is a session."""


def transformed_with_state(
    records: "list[DataFrame]", tier: Tier, partitions: "Mapping[str, int] | None" = None
) -> "DataFrame":
    """Run the transform of a tier with state on Kafka's records, by input, and check the result.

    With the number of `partitions` of the tier's stream, each row has the record for the stream,
    too. Raise DeclarationError if the result lacks a column of the table.
    """
    rows = table_rows(returned_with_state(records, tier), tier)
    return with_records(rows, tier, partitions) if partitions else rows


def table_rows(result: "DataFrame", tier: Tier) -> "DataFrame":
    """Return the columns of the tier's table; DeclarationError if the result lacks one."""
    assert tier.sink is not None  # noqa: S101 — callers checked this
    if missing := [name for name in tier.sink.columns if name not in result.columns]:
        message = (
            f'tier "{tier.name}": the table "{tier.sink.name}" needs {", ".join(missing)}, '
            f"but the transform returns {', '.join(result.columns)}; return every column of the table"
        )
        raise DeclarationError(message)
    return result.select(*tier.sink.columns)


def returned_with_state(records: "list[DataFrame]", tier: Tier) -> "DataFrame":
    """Run the transform on Kafka's records, by input, and return all columns of the result."""
    assert tier.state is not None  # noqa: S101 — callers checked this
    inputs = [
        _timely(records_of_input, stream, tier, tier.state)
        for records_of_input, stream in zip(records, tier.inputs, strict=True)
    ]
    return returned(tier, *inputs)


def _timely(records: "DataFrame", stream: Stream, tier: Tier, state: State) -> "DataFrame":
    """Return an input's records that are neither late nor replays, with `time`, without lineage."""
    rows = incoming(records, replace(tier, inputs=(stream,)))
    arrival = F.col(COLUMN)["t0"].cast("bigint")
    # `time` is at most the arrival: otherwise a fast clock of one sender would make the records of
    # all others late. A value that is not a number must not stop the tier.
    millis = F.least(F.col(state.time).try_cast("bigint"), arrival) if state.time is not None else arrival
    arrived = F.timestamp_millis(arrival)
    happened = F.timestamp_millis(F.when(millis < 0, F.lit(0)).otherwise(millis))
    timed = rows.withColumn(TIME, happened).withColumn(NAME, F.col(COLUMN)["origin"])
    fresh = timed.where(F.col(TIME) >= arrived - F.make_dt_interval(secs=F.lit(state.lateness))).drop(COLUMN)
    return (
        fresh.withWatermark(TIME, f"{state.lateness + APART} seconds")
        .dropDuplicatesWithinWatermark([NAME])
        .drop(NAME)
    )


def output_mode(result: "DataFrame") -> str:
    """Return Spark's output mode: `append` if the transform joins streams, has two steps with state
    in a row, or aggregates by session, else `update`.

    In mode `append`, Spark returns each result row once, when the row is final. In mode `update`,
    Spark returns a row whenever the row changes.
    """
    plan = result._jdf.queryExecution().analyzed()  # noqa: SLF001 — no public API
    is_final = joins(plan) or _steps_in_a_row(plan) > 1 or _has_sessions(plan)
    return "append" if is_final else "update"


def _steps_in_a_row(plan: Any) -> int:
    below = max((_steps_in_a_row(child) for child in _children(plan)), default=0)
    own = plan.getClass().getSimpleName() in STEPS and bool(plan.isStreaming())
    return below + own


def _has_sessions(plan: Any) -> bool:
    """Tell whether a plan aggregates by `session_window`. Its windows grow and merge, so Spark has
    no mode `update` for them.
    """
    own = plan.getClass().getSimpleName() == "Aggregate" and any(
        column.metadata().contains(SESSION)
        for column in _sequence(plan.groupingExpressions())
        if column.getClass().getSimpleName() == "AttributeReference"
    )
    return own or any(_has_sessions(child) for child in _children(plan))


def joins(plan: Any) -> list[Any]:
    """Return the joins of streams in an analysed plan."""
    children = _children(plan)
    own = (
        [plan]
        if plan.getClass().getSimpleName() == "Join" and all(child.isStreaming() for child in children)
        else []
    )
    return [*own, *(join for child in children for join in joins(child))]


def has_input_records(rows: "DataFrame") -> bool:
    """Tell whether each row is one input record, and not made of several or of a part."""
    plan = rows._jdf.queryExecution().analyzed()  # noqa: SLF001 — no public API
    return not (joins(plan) or any(_operators(plan, name) for name in (*STEPS, *MULTIPLIES)))


def has_joined_rows(rows: "DataFrame") -> bool:
    """Tell whether rows come from a join of streams, without an aggregation after it."""
    return _is_joined(rows._jdf.queryExecution().analyzed())  # noqa: SLF001 — no public API


def _is_joined(plan: Any) -> bool:
    name, children = plan.getClass().getSimpleName(), _children(plan)
    is_join = name == "Join" and all(child.isStreaming() for child in children)
    return name not in STEPS and (is_join or any(_is_joined(child) for child in children))


def absorbed_counts(query: "StreamingQuery") -> Absorbed:
    """Return how many records the query's last batch absorbed, dropped as replays or left out."""
    # Python's progress arrives after the commit, so this reads the plan of the JVM
    plan = query._jsq.streamingQuery().lastExecution().executedPlan()  # noqa: SLF001
    metrics_of_drops = [operator.metrics() for operator in _drops(plan)]
    return Absorbed(
        sum(metrics.apply("numOutputRows").value() for metrics in metrics_of_drops),
        sum(metrics.apply("numDroppedDuplicateRows").value() for metrics in metrics_of_drops),
        sum(operator.collectedMetrics().getLong(0) for operator in _operators(plan, COUNTS)),
    )


def batch_watermark(query: "StreamingQuery") -> int:
    """Return the watermark of the query's present batch. Unit: epoch ms."""
    return int(query._jsq.streamingQuery().lastExecution().offsetSeqMetadata().batchWatermarkMs())  # noqa: SLF001


def hold_watermark(query: "StreamingQuery", watermark: "Watermark", waiting: "Iterable[int] | None") -> None:
    """Keep the watermark after the query's batch behind all waiting records.

    `waiting` is as in `Watermark.after`.
    """
    # Spark reads these statistics after the batch is written
    execution = query._jsq.streamingQuery().lastExecution()  # noqa: SLF001
    stats = [operator.eventTimeStats() for operator in _operators(execution.executedPlan(), TIMES)]
    times = [stat.value().max() if stat.value().count() else None for stat in stats]
    for stat, newest in zip(stats, watermark.after(times, waiting, batch_watermark(query)), strict=True):
        stat.reset()
        if newest is not None:
            stat.value().add(newest)


def _operators(plan: Any, name: str) -> list[Any]:
    """Return the operators of this name, from the result downwards."""
    own = [plan] if plan.getClass().getSimpleName() == name else []
    return [*own, *(operator for child in _children(plan) for operator in _operators(child, name))]


def _drops(plan: Any) -> list[Any]:
    """Return Sluice's operators that drop replays, the lowest ones.

    An operator of this kind above them belongs to the transform.
    """
    below = [operator for child in _children(plan) for operator in _drops(child)]
    return below or ([plan] if plan.getClass().getSimpleName() == DROPS else [])


def _children(plan: Any) -> list[Any]:
    return _sequence(plan.children())


def _sequence(items: Any) -> list[Any]:
    return [items.apply(index) for index in range(items.size())]
