"""What a tier with state makes of its inputs: late records and replays are left out before the state sees them (decision record 0016)."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 — what everyone calls it

from sluice.api.declarations import DeclarationError, State, Stream, Tier
from sluice.api.sink import Absorbed
from sluice.records.lineage import COLUMN, incoming

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

    from sluice.records.watermark import Watermark

TIME = "time"
NAME = "_origin"
UNMATCHED = "unmatched"
"""A record that has found no partner, and that its join leaves out (`sluice.records.joins`): it is counted, not written."""
APART = 300
"""A record may arrive in the pipeline so long before another that lies before it in its partition. Unit: seconds."""
DROPS = "StreamingDeduplicateWithinWatermarkExec"
"""The operator that drops replays, by its name in Spark's plan."""
TIMES = "EventTimeWatermarkExec"
"""The operator that notes the newest `time` of its input in a batch; Spark's watermark follows it when the batch is over."""


def absorbed(records: "list[DataFrame]", tier: Tier) -> "DataFrame":
    """Run the transform of a tier with state on what Kafka gives of each input, and check what it returns."""
    assert tier.state is not None  # noqa: S101 — who calls has asked
    assert tier.sink is not None  # noqa: S101
    made = tier.transform(
        *(_given(each, stream, tier, tier.state) for each, stream in zip(records, tier.inputs, strict=True))
    )
    if not hasattr(made, "columns"):
        message = f'tier "{tier.name}": its transform returned {type(made).__name__}; return a DataFrame'
        raise DeclarationError(message)
    if missing := [name for name in tier.sink.columns if name not in made.columns]:
        message = (
            f'tier "{tier.name}": its table "{tier.sink.name}" has {", ".join(missing)}, its transform returns {", ".join(made.columns)}; '
            f"return a column for each of the table's"
        )
        raise DeclarationError(message)
    return made.select(*tier.sink.columns, *(name for name in made.columns if name == UNMATCHED))


def _given(records: "DataFrame", stream: Stream, tier: Tier, state: State) -> "DataFrame":
    """Return the records of an input that are neither late nor replays, with their `time` and without their lineage."""
    rows = incoming(records, replace(tier, inputs=(stream,)))
    came = F.col(COLUMN)["t0"].cast("bigint")
    # no later than the arrival, or one sender's clock would make everybody else late; what is no time at all must not stop the tier
    said = F.least(F.col(state.time).try_cast("bigint"), came) if state.time is not None else came
    arrived, happened = (
        F.timestamp_millis(came),
        F.timestamp_millis(F.when(said < 0, F.lit(0)).otherwise(said)),
    )
    timed = rows.withColumn(TIME, happened).withColumn(NAME, F.col(COLUMN)["origin"])
    fresh = timed.where(F.col(TIME) >= arrived - F.make_dt_interval(secs=F.lit(state.lateness))).drop(COLUMN)
    return (
        fresh.withWatermark(TIME, f"{state.lateness + APART} seconds")
        .dropDuplicatesWithinWatermark([NAME])
        .drop(NAME)
    )


def output_mode(made: "DataFrame") -> str:
    """Return the mode in which Spark gives the results: once and for all where streams are joined, else whenever they change."""
    return "append" if joins(made._jdf.queryExecution().analyzed()) else "update"  # noqa: SLF001 — there is no public way to the plan


def joins(plan: Any) -> list[Any]:
    """Return the joins of streams in an analysed plan."""
    children = _children(plan)
    mine = (
        [plan]
        if plan.getClass().getSimpleName() == "Join" and all(child.isStreaming() for child in children)
        else []
    )
    return [*mine, *(each for child in children for each in joins(child))]


def counted(query: "StreamingQuery") -> Absorbed:
    """Return what the query's last batch has taken in, and what it has dropped as replays."""
    plan = query._jsq.streamingQuery().lastExecution().executedPlan()  # noqa: SLF001 — Python's progress comes after the commit
    found = [each.metrics() for each in _drops(plan)]
    return Absorbed(
        sum(metrics.apply("numOutputRows").value() for metrics in found),
        sum(metrics.apply("numDroppedDuplicateRows").value() for metrics in found),
    )


def hold_watermark(query: "StreamingQuery", watermark: "Watermark", waiting: "Iterable[int] | None") -> None:
    """Have the watermark that follows the query's batch pass no record that waits; `waiting` is as in `Watermark.after`."""
    execution = query._jsq.streamingQuery().lastExecution()  # noqa: SLF001 — likewise; Spark reads these figures once the batch is written
    kept = [each.eventTimeStats() for each in _named(execution.executedPlan(), TIMES)]
    times = [each.value().max() if each.value().count() else None for each in kept]
    for each, newest in zip(
        kept, watermark.after(times, waiting, execution.offsetSeqMetadata().batchWatermarkMs()), strict=True
    ):
        each.reset()
        if newest is not None:
            each.value().add(newest)


def _named(plan: Any, name: str) -> list[Any]:
    """Return the operators of a kind, the upper ones first."""
    mine = [plan] if plan.getClass().getSimpleName() == name else []
    return [*mine, *(each for child in _children(plan) for each in _named(child, name))]


def _drops(plan: Any) -> list[Any]:
    """Return the operators that drop replays; one that the transform has put on top is its own."""
    below = [each for child in _children(plan) for each in _drops(child)]
    return below or ([plan] if plan.getClass().getSimpleName() == DROPS else [])


def _children(plan: Any) -> list[Any]:
    children = plan.children()
    return [children.apply(index) for index in range(children.size())]
