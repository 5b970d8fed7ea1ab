"""Checks a tier's transform before the tier runs: the analysed plan may contain allowed Spark
operators only.
"""

from collections.abc import Iterator
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
from sluice.records.lineage import COLUMN, INDEX, business, check_columns, incoming, returned
from sluice.records.routing import with_records
from sluice.records.state_inputs import (
    COUNTED,
    DELAY,
    NAME,
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
WATERMARK = "EventTimeWatermark"
WITHIN = "DeduplicateWithinWatermark"
SUBQUERIES = {"InSubquery": "IN with a subquery", "Exists": "EXISTS"}
INPUT = "sluice-input"
"""The option of an empty stream that has the name of the tier's input."""
WITH_ONE_TIME = frozenset(
    {"Deduplicate", "DeduplicateWithinWatermark", "TransformWithState", "TransformWithStateInPySpark"}
)
"""Operators that find the time of their rows by Spark's mark of a column, as joins do."""
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
        one_for_one = _check_transform(session, tier)
    finally:
        own = [query for query in session.streams.active if query.id not in running]
        for query in own:
            query.stop()
    if own:
        raise _refusal(tier, refusals.OWN_QUERY)
    return one_for_one


def _refusal(tier: Tier, reason: str) -> DeclarationError:
    return DeclarationError(f'tier "{tier.name}": {reason}')


def _check_transform(session: "SparkSession", tier: Tier) -> bool:
    if tier.state is not None:
        result = returned_with_state(_streams(session, tier), tier)
        _check_operators_with_state(result, tier)
        rows = table_rows(result, tier)
        if tier.outputs:
            check_written(rows, tier)
            rows = with_records(rows, tier, {stream.name: 1 for stream in tier.outputs})
        _check_joins(rows, tier)
        _check_times(rows, tier)
        _check_streaming(rows, tier, output_mode(rows))
        return False
    # a tier with a sink reads its records batch by batch; for other tiers they are a stream
    records = session.createDataFrame([], KAFKA) if tier.sink is not None else _streams(session, tier)[0]
    read = incoming(records, tier)
    result = returned(tier, read)
    one_for_one = check(result, tier)
    if tier.sink is None:
        _check_streaming(result, tier, "append")
    check_columns(result, tier)
    _check_lineage(result, read, tier)
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
    columns = [F.lit(None).cast(field.dataType).alias(field.name) for field in fields]
    return [
        session.readStream.format("rate").option(INPUT, stream.name).load().select(*columns)
        for stream in tier.inputs
    ]


def _analyzed(result: "DataFrame") -> Any:
    return result._jdf.queryExecution().analyzed()  # noqa: SLF001 — the analysed plan has no public API


def _check_operators_with_state(result: "DataFrame", tier: Tier) -> None:
    """Refuse an operator that a tier with state cannot use on its records."""
    for node in nodes_of_transform(_analyzed(result)):
        name = _operator(node)
        if not node.isStreaming():
            continue  # a table that the transform loads
        if node.children().isEmpty():
            raise _refusal(tier, refusals.OWN_STREAM)
        if (name not in RECORD_BY_RECORD | STATEFUL or name == WATERMARK) and not _counts_unmatched(node):
            raise _refusal(tier, refusals.with_state(name))


def _check_streaming(result: "DataFrame", tier: Tier, mode: str) -> None:
    """Refuse a plan that Spark cannot run on a stream, in an output mode."""
    jvm = result.sparkSession._jvm  # noqa: SLF001 — Spark's check has no public API
    assert jvm is not None  # noqa: S101 — the session runs
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    try:
        jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(
            _analyzed(result), modes.Append() if mode == "append" else modes.Update()
        )
    except (Py4JJavaError, AnalysisException) as error:
        raise _refusal(tier, refusals.of_spark(error_text(error))) from error


def _check_joins(result: "DataFrame", tier: Tier) -> None:
    """Refuse a join of streams that leaves records out without counting them."""
    plan = _analyzed(result)
    for join in joins(plan):
        left, right = (_inputs(side) for side in _sequence(join.children()))
        if twice := left & right:
            raise _refusal(tier, refusals.self_join(min(twice)))
        kind = join.joinType().sql()
        if kind != "FULL OUTER":
            raise _refusal(tier, refusals.stream_join(kind))
    reads = [name for node in _nodes(plan) if node.children().isEmpty() for name in _inputs(node)]
    if len(reads) > len(set(reads)):
        raise _refusal(tier, refusals.READS_INPUT_TWICE)
    if not tier.filters and any(_counts_unmatched(node) for node in _nodes(plan)):
        message = (
            "the join leaves out records without a partner; set filters=True, or the audit reports these "
            "records as lost"
        )
        raise _refusal(tier, message)


def _counts_unmatched(node: Any) -> bool:
    """Tell whether an operator counts the records that `joined` leaves out."""
    return _operator(node) == "CollectMetrics" and str(node.name()).startswith(COUNTED)


def _check_times(result: "DataFrame", tier: Tier) -> None:
    """Refuse a step with state whose rows have several times; Spark would fail at run time."""
    optimizer = result.sparkSession._jsparkSession.sessionState().optimizer()  # noqa: SLF001 — as above
    used = optimizer.execute(_analyzed(result).clone())
    own = [node for node in _nodes(used) if _operator(node) in WITH_ONE_TIME]
    for rows in (rows for node in (*own, *joins(used)) for rows in _sequence(node.children())):
        marked = [column for column in _sequence(rows.output()) if column.metadata().contains(DELAY)]
        if len({column.exprId().id() for column in marked}) > 1:
            message = (
                "rows have several times before a step with state "
                f"({', '.join(column.name() for column in marked)}), and Spark takes one; "
                'make the others ordinary columns: F.timestamp_micros(F.unix_micros("…"))'
            )
            raise _refusal(tier, message)


def check(result: "DataFrame", tier: Tier) -> bool:
    """Refuse a transform whose plan cannot run in the tier's mode; the message names the operator.

    Return whether the transform makes exactly one record of each record.
    """
    one_for_one = not any(isinstance(stream.grouping, All) for stream in tier.outputs)
    plan = _analyzed(result)
    nodes = _nodes_of_records(plan)
    for node in nodes:
        name = _operator(node)
        one_for_one = one_for_one and name in ONE_FOR_ONE
        if name not in RECORD_BY_RECORD:
            raise _refusal(tier, refusals.without_state(_kind_of_aggregation(node) or name, tier.mode))
    _check_reads(nodes, tier)
    for node in nodes:
        _check_subqueries(node, tier)
        if _operator(node) == "Filter" and not tier.filters:
            raise _refusal(tier, refusals.leaves_out(refusals.FILTER))
        if _operator(node) == "Join":
            _check_join_with_table(node, tier)
    if tier.mode is Mode.REALTIME:
        _check_realtime(_nodes(plan), tier)
    return one_for_one


def _check_reads(nodes: list[Any], tier: Tier) -> None:
    """Refuse a stream of the transform's own, and an operator that reads the records twice."""
    if any(node.children().isEmpty() and not _is_input(node) for node in nodes):
        raise _refusal(tier, refusals.OWN_STREAM)
    for node in nodes:
        if _operator(node) not in {"Join", "Union"}:
            continue
        children = [_has_records(child) for child in _sequence(node.children())]
        if sum(children) > 1:
            written = "a self-join" if _operator(node) == "Join" else "a union"
            raise _refusal(tier, refusals.reads_twice(written))
        if _operator(node) == "Union" and not all(children):
            raise _refusal(tier, refusals.union_with_table())


def _check_join_with_table(node: Any, tier: Tier) -> None:
    """Refuse a join of records and a table that loses records, or their order, or keeps others."""
    kind = node.joinType().sql()
    side, other = ("LEFT", "RIGHT") if _has_records(node.left()) else ("RIGHT", "LEFT")
    if kind in {"FULL OUTER", f"{other} OUTER"} or (side == "RIGHT" and kind in {"LEFT SEMI", "LEFT ANTI"}):
        raise _refusal(tier, refusals.keeps_table(kind))
    if kind != f"{side} OUTER" and not tier.filters:
        raise _refusal(tier, refusals.leaves_out(refusals.join(kind)))
    table = node.right() if side == "LEFT" else node.left()
    if not any(_is_broadcast(below) for below in _nodes(table)):
        message = (
            "the transform joins a table without F.broadcast, so Spark may sort the records by the table's "
            "key; records that come out after later ones would be dropped as replays; write "
            "F.broadcast(table)"
        )
        raise _refusal(tier, message)


def _check_subqueries(node: Any, tier: Tier) -> None:
    """Refuse a subquery of which Spark makes a join; a value that no record chooses is none."""
    if node.subqueries().isEmpty():
        return
    for expression in _expressions(node):
        name = expression.getClass().getSimpleName()
        if name in SUBQUERIES or (name == "ScalarSubquery" and not expression.outerAttrs().isEmpty()):
            raise _refusal(tier, refusals.subquery(SUBQUERIES.get(name, "a subquery for each record")))


def _check_realtime(nodes: list[Any], tier: Tier) -> None:
    """Refuse what a realtime tier cannot use, in the tables that it joins, too."""
    for node in nodes:
        if _operator(node) not in RECORD_BY_RECORD:
            raise _refusal(tier, refusals.on_table(_operator(node)))
        if any(expression.getClass().getSimpleName() in PYTHON for expression in _expressions(node)):
            raise _refusal(tier, refusals.python_in_realtime())


def _check_lineage(result: "DataFrame", read: "DataFrame", tier: Tier) -> None:
    """Refuse another column in place of the lineage, and two columns of one name."""
    kinds = [frame.schema[COLUMN].dataType.simpleString() for frame in (result, read)]
    if kinds[0] != kinds[1]:
        message = (
            f'the transform changed the column "{COLUMN}", by which Sluice finds records again; '
            "return it unchanged, and give the new column another name"
        )
        raise _refusal(tier, message)
    names = [name.lower() for name in result.columns]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        message = (
            f"the transform returns {', '.join(twice)} twice; rename one column, or after a join drop that "
            f'of the table: .drop(table["{twice[0]}"])'
        )
        raise _refusal(tier, message)


def _check_names(result: "DataFrame", tier: Tier) -> None:
    """Refuse several records with one origin in one stream or sink.

    All but the first of these records would be dropped as replays.
    """
    if len(tier.outputs) > 1:
        return  # each record may go to a different stream
    generators = [
        node.generator()
        for node in _nodes_of_records(_analyzed(result))
        if node.getClass().getSimpleName() == "Generate"
    ]
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


def nodes_of_transform(plan: Any) -> Iterator[Any]:
    """Yield the operators of the transform of a tier with state, from the result downwards."""
    if _operator(plan) == WITHIN and NAME in plan.keys().toString():
        return  # Sluice drops replays with this operator; Sluice added all operators below, too
    yield plan
    for child in _sequence(plan.children()):
        yield from nodes_of_transform(child)


def _operator(node: Any) -> str:
    """Return the name of an operator. Spark plans a pivot as two aggregations."""
    name = str(node.getClass().getSimpleName())
    is_pivot = name == "Aggregate" and "pivotfirst(" in node.aggregateExpressions().toString()
    return "Pivot" if is_pivot else name


def _kind_of_aggregation(node: Any) -> str | None:
    """Return the name of an aggregation that an author does not write as `groupBy`."""
    if _operator(node) != "Aggregate":
        return None
    if node.groupingExpressions().isEmpty():
        return "GlobalAggregate"
    return "GroupingSets" if _operator(node.child()) == "Expand" else None


def _nodes_of_records(plan: Any) -> list[Any]:
    """Return the operators that records pass, from the result downwards; not those of tables."""
    if plan.children().isEmpty():
        return [plan] if plan.isStreaming() or _is_input(plan) else []
    nodes = [node for child in _sequence(plan.children()) for node in _nodes_of_records(child)]
    return [plan, *nodes] if nodes else []


def _has_records(plan: Any) -> bool:
    """Tell whether a part of a plan reads Kafka's records, or a stream of the transform's own."""
    return bool(plan.isStreaming()) or bool(_nodes_of_records(plan))


def _is_input(node: Any) -> bool:
    """Tell whether an operator is the source of Kafka's records."""
    return node.children().isEmpty() and (
        bool(_inputs(node)) or any(column.name() == "timestampType" for column in _sequence(node.output()))
    )


def _inputs(plan: Any) -> set[str]:
    """Return the names of the streams that a part of a plan reads."""
    return {
        node.extraOptions().get(INPUT)
        for node in _nodes(plan)
        if _operator(node) == "StreamingRelationV2" and node.extraOptions().containsKey(INPUT)
    }


def _is_broadcast(node: Any) -> bool:
    return node.getClass().getSimpleName() == "ResolvedHint" and "broadcast" in node.hints().toString()


def _expressions(node: Any) -> Iterator[Any]:
    """Yield each expression of an operator, and those within it."""
    for expression in _sequence(node.expressions()):
        yield expression
        yield from _within(expression)


def _within(expression: Any) -> Iterator[Any]:
    for child in _sequence(expression.children()):
        yield child
        yield from _within(child)


def _nodes(plan: Any) -> list[Any]:
    nodes = [plan]
    for child in _sequence(plan.children()):
        nodes.extend(_nodes(child))
    return nodes


def _sequence(items: Any) -> list[Any]:
    return [items.apply(index) for index in range(items.size())]
