"""Which operators a tier may use: checked on the analysed plan of its transform, before anything runs."""

from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812 — what everyone calls it
from pyspark.sql.types import IntegralType

from sluice.api.declarations import DeclarationError, Tier
from sluice.api.grouping import All, Direct
from sluice.failures import plainly
from sluice.records.lineage import INDEX, business, transformed
from sluice.records.state_inputs import UNMATCHED, absorbed, joins, output_mode
from sluice_ops.model.tier import Mode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORD_BY_RECORD = frozenset(
    {
        "Project", "Filter", "Generate", "Join", "Union", "SubqueryAlias", "ResolvedHint", "View", "LocalRelation", "LogicalRDD",
        "LogicalRelation", "DataSourceV2Relation", "StreamingRelation", "StreamingRelationV2", "OneRowRelation", "Range",
    }
)  # fmt: skip
"""Operators that keep records in order and hold no state: all that a realtime tier, or a tier that writes a stream, may use."""
ONE_FOR_ONE = frozenset({"Project", "SubqueryAlias", "LocalRelation", "LogicalRDD"})
"""Operators that make exactly one record of each."""
STATEFUL = frozenset(
    {
        "Aggregate", "Deduplicate", "DeduplicateWithinWatermark", "Distinct", "EventTimeWatermark", "TransformWithState",
        "TransformWithStateInPySpark",
    }
)  # fmt: skip
"""What a tier with state may use besides: Spark keeps it in the state store."""
PYTHON = ("PythonUDF", "PythonUDAF", "PythonUDTF", "PythonFuncExpression")


KAFKA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int,"
    " headers array<struct<key: string, value: binary>>"
)


def check_tier(session: "SparkSession", tier: Tier) -> bool:
    """Run the tier's transform on no records, check the plan that comes out, and tell whether it makes exactly one of each record."""
    if tier.state is not None:
        check_state(state_plan(session, tier), tier)
        return False
    made = transformed(session.createDataFrame([], KAFKA), tier)
    one_for_one = check(made, tier)
    _check_names(made, tier)
    _check_columns(made, tier)
    _check_directions(made, tier)
    return one_for_one


def _check_directions(made: "DataFrame", tier: Tier) -> None:
    """Refuse a partition's number that is none: Spark would fail at a text while it runs, and cut 1.5 to 1 in silence."""
    for stream in tier.outputs:
        if isinstance(stream.grouping, Direct):
            column = made.schema[stream.grouping.column]
            if not isinstance(column.dataType, IntegralType):
                kind = column.dataType.simpleString()
                message = (
                    f'tier "{tier.name}": "{stream.name}" is directed by the column {column.name}, which is {kind} and no whole number; '
                    f'cast it in the transform: F.col("{column.name}").cast("int")'
                )
                raise DeclarationError(message)


def state_plan(session: "SparkSession", tier: Tier) -> "DataFrame":
    """Run the transform of a tier with state on streams that never have a record."""
    fields = session.createDataFrame([], KAFKA).schema
    ticks = session.readStream.format("rate").load()
    nothing = ticks.select(*(F.lit(None).cast(field.dataType).alias(field.name) for field in fields))
    return absorbed([nothing for _ in tier.inputs], tier)


def check_state(made: "DataFrame", tier: Tier) -> None:
    """Refuse a transform that Spark cannot keep the state of, naming the operator."""
    plan = made._jdf.queryExecution().analyzed()  # noqa: SLF001 — there is no public way to the analysed plan
    for node in _nodes(plan):
        name = node.getClass().getSimpleName()
        if name not in RECORD_BY_RECORD | STATEFUL:
            message = (
                f'tier "{tier.name}": {name} cannot run on a stream; a tier with state may aggregate by window or key, join its inputs, '
                f"drop duplicates and transformWithState"
            )
            raise DeclarationError(message)
    _check_joins(made, tier)
    mode = output_mode(made)
    jvm = made.sparkSession._jvm  # noqa: SLF001 — Spark has this check for itself alone
    assert jvm is not None  # noqa: S101 — the session runs
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    try:
        jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(
            plan, modes.Append() if mode == "append" else modes.Update()
        )
    except (Py4JJavaError, AnalysisException) as error:
        message = f'tier "{tier.name}": Spark refuses its transform in output mode {mode}: {plainly(error).splitlines()[0]}'
        raise DeclarationError(message) from error


def _check_joins(made: "DataFrame", tier: Tier) -> None:
    """Refuse a join of streams that leaves records out without anybody's knowing."""
    for join in joins(made._jdf.queryExecution().analyzed()):  # noqa: SLF001 — as above
        kind = join.joinType().sql()
        if kind != "FULL OUTER":
            message = (
                f'tier "{tier.name}": its transform joins streams ({kind}), and nobody could count the records that find no partner; '
                f"join them with sluice.records.joins.joined"
            )
            raise DeclarationError(message)
        if _marks_unmatched(made) and UNMATCHED not in made.columns:
            message = f'tier "{tier.name}": its transform dropped the column "{UNMATCHED}" of its join; select it with the others'
            raise DeclarationError(message)
        if UNMATCHED in made.columns and not tier.filters:
            message = (
                f'tier "{tier.name}": its join leaves out records that find no partner; say so with filters=True, so that the audit '
                f"does not take them for lost"
            )
            raise DeclarationError(message)


def _marks_unmatched(made: "DataFrame") -> bool:
    plan = made._jdf.queryExecution().analyzed()  # noqa: SLF001 — as above
    return any(
        f" AS {UNMATCHED}#" in each.toString()
        for node in _nodes(plan)
        for each in _sequence(node.expressions())
    )


def check(made: "DataFrame", tier: Tier) -> bool:
    """Refuse a transform whose plan cannot run in the tier's mode, naming the operator; tell whether it makes exactly one of each."""
    one_for_one = not any(isinstance(stream.grouping, All) for stream in tier.outputs)
    nodes = _nodes(made._jdf.queryExecution().analyzed())  # noqa: SLF001 — there is no public way to the analysed plan
    if sum(_is_input(node) for node in nodes) > 1:
        message = (
            f'tier "{tier.name}": its transform reads its records twice (a union or a join with themselves), so some would come out '
            f'behind later ones and be dropped as replays; make several of one in one go, with posexplode and a column "{INDEX}"'
        )
        raise DeclarationError(message)
    for node in nodes:
        name = node.getClass().getSimpleName()
        one_for_one = one_for_one and name in ONE_FOR_ONE
        if name not in RECORD_BY_RECORD:
            _refuse(tier, name)
        if not tier.filters and _leaves_out(node, name):
            message = (
                f'tier "{tier.name}": its transform leaves records out ({name}); say so with filters=True, so that the audit does not '
                f'take them for lost, or keep them and give them a "reason", which sends them to quarantine'
            )
            raise DeclarationError(message)
        if name == "Join" and not any(_is_broadcast(each) for each in _nodes(node)):
            message = (
                f'tier "{tier.name}": its transform joins a table without F.broadcast around it, so Spark may sort the records by the '
                f"table's key, and those that fall behind others would be dropped as replays; write F.broadcast(table)"
            )
            raise DeclarationError(message)
        if tier.mode is not Mode.REALTIME:
            continue
        for expression in _sequence(node.expressions()):
            if _is_python(expression):
                _refuse(tier, "Python UDF")
    return one_for_one


def _check_names(made: "DataFrame", tier: Tier) -> None:
    """Refuse several records of one name in one stream or sink: all but the first of them would be taken for replays."""
    if len(tier.outputs) > 1:
        return  # each may go to a stream of its own
    plan = made._jdf.queryExecution().analyzed()  # noqa: SLF001 — as above
    several = [node for node in _nodes(plan) if node.getClass().getSimpleName() == "Generate"]
    several = [
        node for node in several if node.generator().getClass().getSimpleName() != "JsonTuple"
    ]  # which makes one row of each
    if several and INDEX not in made.columns:
        message = (
            f'tier "{tier.name}": its transform makes several records of one ({several[0].generator().prettyName()}) under one name, and '
            f'all but the first would be dropped as replays; return a column "{INDEX}" that counts them (posexplode gives one)'
        )
        raise DeclarationError(message)


def _check_columns(made: "DataFrame", tier: Tier) -> None:
    """Refuse rows that lack a column of the tier's sink."""
    if tier.sink is None:
        return
    own = business(made, tier)
    if missing := [name for name in tier.sink.columns if name not in own]:
        message = (
            f'tier "{tier.name}": its sink "{tier.sink.name}" takes {", ".join(missing)}, its transform returns {", ".join(own)}; '
            f"return a column for each of the sink's"
        )
        raise DeclarationError(message)


def _leaves_out(node: Any, name: str) -> bool:
    return name == "Filter" or (
        name == "Join" and node.joinType().toString() not in {"LeftOuter", "FullOuter"}
    )


def _is_input(node: Any) -> bool:
    """Tell whether it is where Kafka's records come from."""
    return node.children().isEmpty() and any(
        attribute.name() == "timestampType" for attribute in _sequence(node.output())
    )


def _is_broadcast(node: Any) -> bool:
    return node.getClass().getSimpleName() == "ResolvedHint" and "broadcast" in node.hints().toString()


def _refuse(tier: Tier, operator: str) -> None:
    if tier.mode is Mode.REALTIME:
        message = (
            f'tier "{tier.name}": {operator} cannot run in mode realtime, which takes project, filter, explode and a join '
            f"with a small table; set mode=Mode.BATCH, or do without it"
        )
    else:
        message = (
            f'tier "{tier.name}": {operator} does not keep records one by one and in order, so their replays could not be told '
            f"from new ones; let the sink add up (sluice.sinks.table.Totals), or give the tier state and a table `Latest`"
        )
    raise DeclarationError(message)


def _is_python(expression: Any) -> bool:
    if expression.getClass().getSimpleName() in PYTHON:
        return True
    return any(_is_python(child) for child in _sequence(expression.children()))


def _nodes(plan: Any) -> list[Any]:
    found = [plan]
    for child in _sequence(plan.children()):
        found.extend(_nodes(child))
    return found


def _sequence(items: Any) -> list[Any]:
    return [items.apply(index) for index in range(items.size())]
