"""Checks a tier's transform before the tier runs: the analysed plan may contain allowed Spark
operators only.
"""

from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812 — what everyone calls it
from pyspark.sql.types import IntegralType

from sluice.api.declarations import DeclarationError, Tier
from sluice.api.grouping import All, Direct
from sluice.checks import refusals
from sluice.failures import error_text
from sluice.records.formats import check_written
from sluice.records.lineage import INDEX, business, check_columns, incoming, returned
from sluice.records.routing import with_records
from sluice.records.state_inputs import (
    UNMATCHED,
    joins,
    output_mode,
    returned_with_state,
    table_rows,
    transformed_with_state,
)
from sluice_ops.model.tier import Mode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORD_BY_RECORD = frozenset(
    {
        "Project", "Filter", "Generate", "Join", "Union", "SubqueryAlias", "ResolvedHint", "View",
        "LocalRelation", "LogicalRDD", "LogicalRelation", "DataSourceV2Relation", "StreamingRelation",
        "StreamingRelationV2", "OneRowRelation", "Range",
    }
)  # fmt: skip
"""Operators that keep the order of records and hold no state.

A tier without state, realtime or batch, may use only these.
"""
ONE_FOR_ONE = frozenset({"Project", "SubqueryAlias", "LocalRelation", "LogicalRDD", "StreamingRelationV2"})
"""Operators that make exactly one record of each record."""
STATEFUL = frozenset(
    {
        "Aggregate", "Deduplicate", "DeduplicateWithinWatermark", "Distinct", "EventTimeWatermark",
        "Expand", "TransformWithState", "TransformWithStateInPySpark", "UpdateEventTimeWatermarkColumn",
    }
)  # fmt: skip
"""Operators that only a tier with state may use. Spark keeps their data in the state store.

Two of them keep nothing: `Expand` puts a record into each of its overlapping windows, and
`UpdateEventTimeWatermarkColumn` is the `eventTimeColumnName` of transformWithState.
"""
PYTHON = ("PythonUDF", "PythonUDAF", "PythonUDTF", "PythonFuncExpression")

KAFKA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp,"
    " timestampType int, headers array<struct<key: string, value: binary>>"
)
"""The columns of Kafka's records in Spark."""


def check_tier(session: "SparkSession", tier: Tier) -> bool:
    """Run the tier's transform on an empty DataFrame, and check the resulting plan.

    Return whether the transform makes exactly one record of each record. Raise DeclarationError if
    the tier cannot run.
    """
    running = {query.id for query in session.streams.active}
    try:
        return _check_transform(session, tier)
    finally:
        for query in session.streams.active:
            if query.id not in running:  # the transform began it
                query.stop()


def _check_transform(session: "SparkSession", tier: Tier) -> bool:
    if tier.state is not None:
        result = returned_with_state(_streams(session, tier), tier)
        _check_operators_with_state(result, tier)
        rows = table_rows(result, tier)
        if tier.outputs:
            check_written(rows, tier)
            rows = with_records(rows, tier, {stream.name: 1 for stream in tier.outputs})
        _check_state(rows, tier)
        return False
    # a tier with a sink reads its records batch by batch; for other tiers they are a stream
    records = session.createDataFrame([], KAFKA) if tier.sink is not None else _streams(session, tier)[0]
    result = returned(tier, incoming(records, tier))
    one_for_one = check(result, tier)
    check_columns(result, tier)
    _check_names(result, tier)
    _check_columns(result, tier)
    check_written(result, tier)
    _check_directions(result, tier)
    return one_for_one


def _check_directions(result: "DataFrame", tier: Tier) -> None:
    """Refuse a column of partition numbers that is not an integer column.

    Spark would fail at a text at run time, and would silently cut 1.5 to 1.
    """
    for stream in tier.outputs:
        if isinstance(stream.grouping, Direct):
            column = result.schema[stream.grouping.column]
            if not isinstance(column.dataType, IntegralType):
                kind = column.dataType.simpleString()
                message = (
                    f'tier "{tier.name}": the column {column.name} chooses the partition of "{stream.name}", '
                    f"but its type is {kind}, not an integer; "
                    f'cast the column in the transform: F.col("{column.name}").cast("int")'
                )
                raise DeclarationError(message)


def state_plan(session: "SparkSession", tier: Tier) -> "DataFrame":
    """Run the transform of a tier with state on empty streams, and return the result."""
    return transformed_with_state(_streams(session, tier), tier)


def _streams(session: "SparkSession", tier: Tier) -> "list[DataFrame]":
    """Return an empty stream of Kafka's records for each input of a tier."""
    fields = session.createDataFrame([], KAFKA).schema
    ticks = session.readStream.format("rate").load()
    empty = ticks.select(*(F.lit(None).cast(field.dataType).alias(field.name) for field in fields))
    return [empty for _ in tier.inputs]


def _check_operators_with_state(result: "DataFrame", tier: Tier) -> None:
    """Refuse an operator that a tier with state cannot use."""
    for node in _nodes(result._jdf.queryExecution().analyzed()):  # noqa: SLF001 — the analysed plan has no public API
        name = node.getClass().getSimpleName()
        if name not in RECORD_BY_RECORD | STATEFUL:
            message = f'tier "{tier.name}": {refusals.with_state(name)}'
            raise DeclarationError(message)


def _check_state(result: "DataFrame", tier: Tier) -> None:
    """Refuse a transform whose state Spark cannot keep."""
    plan = result._jdf.queryExecution().analyzed()  # noqa: SLF001 — as above
    _check_joins(result, tier)
    mode = output_mode(result)
    jvm = result.sparkSession._jvm  # noqa: SLF001 — Spark's check has no public API
    assert jvm is not None  # noqa: S101 — the session runs
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    try:
        jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(
            plan, modes.Append() if mode == "append" else modes.Update()
        )
    except (Py4JJavaError, AnalysisException) as error:
        message = f'tier "{tier.name}": {refusals.of_spark(error_text(error))}'
        raise DeclarationError(message) from error


def _check_joins(result: "DataFrame", tier: Tier) -> None:
    """Refuse a join of streams that leaves records out without counting them."""
    for join in joins(result._jdf.queryExecution().analyzed()):  # noqa: SLF001 — as above
        kind = join.joinType().sql()
        if kind != "FULL OUTER":
            message = (
                f'tier "{tier.name}": the transform joins streams ({kind}), so records without a partner '
                "would not be counted; use `joined` (from sluice import joined)"
            )
            raise DeclarationError(message)
        if _marks_unmatched(result) and UNMATCHED not in result.columns:
            message = (
                f'tier "{tier.name}": the transform dropped the column "{UNMATCHED}" of the join; '
                f'select "{UNMATCHED}" with the other columns'
            )
            raise DeclarationError(message)
        if UNMATCHED in result.columns and not tier.filters:
            message = (
                f'tier "{tier.name}": the join leaves out records without a partner; '
                "set filters=True, or the audit reports these records as lost"
            )
            raise DeclarationError(message)


def _marks_unmatched(result: "DataFrame") -> bool:
    plan = result._jdf.queryExecution().analyzed()  # noqa: SLF001 — as above
    return any(
        f" AS {UNMATCHED}#" in expression.toString()
        for node in _nodes(plan)
        for expression in _sequence(node.expressions())
    )


def check(result: "DataFrame", tier: Tier) -> bool:
    """Refuse a transform whose plan cannot run in the tier's mode; the message names the operator.

    Return whether the transform makes exactly one record of each record.
    """
    one_for_one = not any(isinstance(stream.grouping, All) for stream in tier.outputs)
    nodes = _nodes(result._jdf.queryExecution().analyzed())  # noqa: SLF001 — as above
    if sum(_is_input(node) for node in nodes) > 1:
        message = (
            f'tier "{tier.name}": the transform reads its records twice (a union or a self-join), '
            "so some records would come out after later ones and be dropped as replays; "
            f'to make several records of one, use posexplode and a column "{INDEX}"'
        )
        raise DeclarationError(message)
    for node in nodes:
        name = node.getClass().getSimpleName()
        one_for_one = one_for_one and name in ONE_FOR_ONE
        if name not in RECORD_BY_RECORD:
            message = f'tier "{tier.name}": {refusals.without_state(name, tier.mode)}'
            raise DeclarationError(message)
        if not tier.filters and _leaves_out(node, name):
            message = (
                f'tier "{tier.name}": the transform leaves records out ({name}); '
                "set filters=True, or the audit reports these records as lost; "
                'or keep the records with a "reason", which sends them to quarantine'
            )
            raise DeclarationError(message)
        if name == "Join" and not any(_is_broadcast(below) for below in _nodes(node)):
            message = (
                f'tier "{tier.name}": the transform joins a table without F.broadcast, so Spark may sort '
                "the records by the table's key; records that come out after later ones would be dropped "
                "as replays; write F.broadcast(table)"
            )
            raise DeclarationError(message)
        if tier.mode is not Mode.REALTIME:
            continue
        for expression in _sequence(node.expressions()):
            if _is_python(expression):
                message = f'tier "{tier.name}": {refusals.python_in_realtime()}'
                raise DeclarationError(message)
    return one_for_one


def _check_names(result: "DataFrame", tier: Tier) -> None:
    """Refuse several records with one origin in one stream or sink.

    All but the first of these records would be dropped as replays.
    """
    if len(tier.outputs) > 1:
        return  # each record may go to a different stream
    plan = result._jdf.queryExecution().analyzed()  # noqa: SLF001 — as above
    generators = [node.generator() for node in _nodes(plan) if node.getClass().getSimpleName() == "Generate"]
    # JsonTuple makes one row of each row
    several = [generator for generator in generators if generator.getClass().getSimpleName() != "JsonTuple"]
    if several and INDEX not in result.columns:
        message = (
            f'tier "{tier.name}": the transform makes several records of one ({several[0].prettyName()}) '
            "with the same origin, so all but the first would be dropped as replays; "
            f'return a column "{INDEX}" that counts them (posexplode returns one)'
        )
        raise DeclarationError(message)


def _check_columns(result: "DataFrame", tier: Tier) -> None:
    """Refuse rows that lack a column of the tier's sinks."""
    own = business(result, tier)
    for sink in tier.sinks:
        if missing := [name for name in sink.columns if name not in own]:
            message = (
                f'tier "{tier.name}": the sink "{sink.name}" needs {", ".join(missing)}, '
                f"but the transform returns {', '.join(own)}; return every column of the sink"
            )
            raise DeclarationError(message)


def _leaves_out(node: Any, name: str) -> bool:
    return name == "Filter" or (
        name == "Join" and node.joinType().toString() not in {"LeftOuter", "FullOuter"}
    )


def _is_input(node: Any) -> bool:
    """Tell whether an operator is the source of Kafka's records."""
    return node.children().isEmpty() and (
        node.isStreaming() or any(column.name() == "timestampType" for column in _sequence(node.output()))
    )


def _is_broadcast(node: Any) -> bool:
    return node.getClass().getSimpleName() == "ResolvedHint" and "broadcast" in node.hints().toString()


def _is_python(expression: Any) -> bool:
    if expression.getClass().getSimpleName() in PYTHON:
        return True
    return any(_is_python(child) for child in _sequence(expression.children()))


def _nodes(plan: Any) -> list[Any]:
    nodes = [plan]
    for child in _sequence(plan.children()):
        nodes.extend(_nodes(child))
    return nodes


def _sequence(items: Any) -> list[Any]:
    return [items.apply(index) for index in range(items.size())]
