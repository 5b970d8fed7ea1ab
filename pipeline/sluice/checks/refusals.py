"""Why a tier cannot use an operator of Spark: in the author's words, with what to write instead.

Pure.
"""

import re
from typing import NamedTuple

from sluice_ops.model.tier import Mode


class _Words(NamedTuple):
    """What an author wrote for an operator, and what to write instead."""

    written: str
    without_state: str
    with_state: str


_KEEP = (
    "to count or add up, let the table do it (`Totals`), or give the tier state and a table `Latest`: "
    "state=State(lateness=…)"
)
_ORDER = "remove it, and sort where the rows are read"
_LIMIT = "choose records with `where`; for the first n of a group, take {}"
_SPREAD = (
    'remove it; to bring records with one key together, give the stream before this tier grouping=Fields("…")'
)
_WATERMARK = "remove it; Sluice keeps the watermark of a tier with state: State(lateness=…, time=…)"
_GROUPS = "use transformWithState, or an aggregation"
_AGGREGATE = _Words("groupBy(…)", _KEEP, "aggregate by window or key")
_SEVERAL = 'to make several records of one, use posexplode and a column "index"'
_TABLE = "join it with F.broadcast(table), how='left'"
_PIVOT = 'name the values: F.sum(F.when(F.col("kind") == "buy", 1)) for each of them'
_DUPLICATES = _Words(
    "dropDuplicates or distinct",
    "replays are dropped already; to keep one row for a key of your own, write it to a table `Latest`",
    "dropDuplicates by columns",
)
_LIMITED = _Words(
    "limit",
    _LIMIT.format("a tier with state"),
    _LIMIT.format("transformWithState or F.max_by(…, …) in groupBy"),
)
_SPREADS = _Words("repartition or coalesce", _SPREAD, "remove it; Spark brings the records of a key together")
_MAPS = _Words(
    "mapInPandas or mapInArrow",
    "a function of columns keeps records one by one: F.pandas_udf in mode=Mode.BATCH",
    "write a function of columns: F.pandas_udf",
)
_GROUPED = _Words("groupBy(…).applyInPandas", "give the tier state, and use transformWithState", _GROUPS)
_MINUS = _Words(
    "subtract, exceptAll or intersect",
    "compare with a small table: a join with F.broadcast(table), how='left'",
    "compare two inputs by `joined` (from sluice import joined)",
)
_OWN_STATE = _Words("transformWithState", "give the tier state: state=State(lateness=…)", "")
_OPERATORS = {
    "Aggregate": _AGGREGATE,
    "AttachDistributedSequence": _Words(
        "zipWithIndex",
        "a record is numbered already: lineage.origin is its own name",
        "take a number that the record brings with it",
    ),
    "CollectMetrics": _Words(
        "observe", *("count with a counter of your own: `sluice.metrics` (from sluice import metrics)",) * 2
    ),
    "Deduplicate": _DUPLICATES,
    "DeduplicateWithinWatermark": _DUPLICATES._replace(written="dropDuplicatesWithinWatermark"),
    "Distinct": _DUPLICATES,
    "EventTimeWatermark": _Words("withWatermark", _WATERMARK, _WATERMARK),
    "Except": _MINUS,
    "Expand": _Words("unpivot, or an overlapping F.window without groupBy", _SEVERAL, _GROUPS),
    "FlatMapCoGroupsInArrow": _GROUPED._replace(written="cogroup(…).applyInArrow"),
    "FlatMapCoGroupsInPandas": _GROUPED._replace(written="cogroup(…).applyInPandas"),
    "FlatMapGroupsInArrow": _GROUPED._replace(written="groupBy(…).applyInArrow"),
    "FlatMapGroupsInPandas": _GROUPED,
    "FlatMapGroupsInPandasWithState": _GROUPED._replace(written="applyInPandasWithState"),
    "GlobalLimit": _LIMITED,
    "GlobalAggregate": _AGGREGATE._replace(written="an aggregation of all records (agg, describe …)"),
    "GroupingSets": _AGGREGATE._replace(written="cube, rollup or GROUPING SETS"),
    "Intersect": _MINUS,
    "LateralJoin": _Words("a lateral join", _TABLE, "join the table itself, without LATERAL"),
    "LocalLimit": _LIMITED,
    "MapInArrow": _MAPS,
    "MapInPandas": _MAPS,
    "Offset": _LIMITED._replace(written="offset"),
    "Pivot": _Words("pivot", f"give the tier state, and {_PIVOT}", _PIVOT),
    "RebalancePartitions": _SPREADS,
    "Repartition": _SPREADS,
    "RepartitionByExpression": _SPREADS,
    "Sample": _Words(
        "sample",
        "choose by a column, so that a replay chooses the same records: "
        "where(F.pmod(F.hash(…), F.lit(10)) == 0), with filters=True",
        "choose by a column: where(F.pmod(F.hash(…), F.lit(10)) == 0)",
    ),
    "Sort": _Words("orderBy or sort", _ORDER, _ORDER),
    "TransformWithState": _OWN_STATE,
    "TransformWithStateInPySpark": _OWN_STATE,
    "Window": _Words(
        "a function .over(Window…)",
        "a record is compared with other records, so give the tier state, and aggregate or use "
        "transformWithState",
        "for the best row take F.max_by or F.min_by in groupBy; for the first n, F.slice of "
        "F.sort_array(F.collect_list(…)) in groupBy by F.window; or transformWithState",
    ),
    "WithCTE": _Words(
        "WITH … AS (a common table expression)", *("write the query where it is used: FROM (SELECT …)",) * 2
    ),
}
FILTER = "where, filter, dropna or F.window"
"""What an author writes for a filter; F.window leaves out records without a time."""
_JOINS = {
    "INNER": "an inner join",
    "CROSS": "a cross join",
    "LEFT OUTER": "a left join",
    "RIGHT OUTER": "a right join",
    "FULL OUTER": "a full join",
    "LEFT SEMI": "a left_semi join",
    "LEFT ANTI": "a left_anti join",
}
_INNER = 'joined(left, right, on, within=(0, 600), how="inner")'
_LEFT, _RIGHT = _INNER.replace("inner", "left"), _INNER.replace("inner", "right")
_STREAM_JOINS = {
    "INNER": _INNER,
    "CROSS": f"{_INNER}, where `on` says which records belong together",
    "LEFT OUTER": _LEFT,
    "RIGHT OUTER": _RIGHT,
    "LEFT SEMI": f"{_INNER}, and select columns of the left input",
    "LEFT ANTI": f"{_LEFT}, and a column that tells whether the right one is null",
}
"""What to write instead of a join of two inputs."""
PYTHON_FUNCTION = "a Python function (F.udf or F.pandas_udf)"
OWN_QUERY = (
    "the transform starts a query of its own (writeStream, foreachBatch, toTable); return the DataFrame, and "
    "Sluice writes it to the tier's outputs or sink; for another system, write a sink of your own"
)
OWN_STREAM = (
    "the transform reads a stream of its own (readStream), which Sluice would neither count nor hand over; "
    "declare a Stream, and name it in the tier's inputs"
)
READS_INPUT_TWICE = (
    "the transform reads an input twice (a union of two results of the input), so its records would be "
    "counted twice; compute both results in one groupBy or transformWithState, or give the second one a tier "
    "of its own"
)
_OF_TABLE = (
    "a join with a table keeps no rows of the table that no record made; write "
    "records.join(F.broadcast(table), …, how='left')"
)
_BOUND = (
    "a full join of two inputs needs a bound of time, or its state never ends: "
    'on & (right["time"] >= left["time"]) & (right["time"] <= left["time"] + F.expr("INTERVAL 10 MINUTES")); '
    "for an inner, left or right join use `joined` (from sluice import joined)"
)
_SPARKS_WORDS = {
    "Detected pattern of possible 'correctness' issue": (
        "rows of an aggregation or a join are not final at once, so an operator with state cannot follow, "
        "except `joined` and an aggregation by F.window, over F.window_time of the first step's window or "
        "the joined_time of a join; otherwise do both steps by transformWithState"
    ),
    "is not supported for streaming aggregations without watermark": (
        "an aggregation after another step with state needs windows, so that rows of the first step become "
        "final: group by F.window, over F.window_time of the first step's window, or over the joined_time "
        "of a join; or do both steps by transformWithState"
    ),
    "Reference `time` is ambiguous": (
        'the rows of a join have the times of both sides; use "joined_time", the later one'
    ),
    r"must be executed with writeStream.start\(\)": (
        "the transform asks for a result (collect, count, show, toPandas …) or keeps one (cache, "
        "checkpoint), but a stream never ends; remove the call, or use it on a table that the transform "
        "loads itself"
    ),
    r"The method (`\w+`) can not be called on streaming": (
        "{} cannot be called on a stream; return the DataFrame, and Sluice writes it to the tier's outputs "
        "or sink"
    ),
    "WRITE_STREAM_NOT_ALLOWED|checkpointLocation must be specified": OWN_QUERY,
    "pivot is not supported on a streaming": f"pivot needs all records; {_PIVOT}",
    "Distinct aggregations are not supported": (
        "F.countDistinct cannot run on a stream; write F.approx_count_distinct(…), "
        "or F.size(F.collect_set(…)) in groupBy by F.window"
    ),
    "Stream-stream FullOuter join": _BOUND,
    r"Outer joins? with (a )?streaming": _OF_TABLE,
    r"INVALID_SUBQUERY_EXPRESSION\.STREAMING_QUERY": (
        "a subquery (IN, EXISTS, a SELECT as a value) cannot read records; join two inputs with `joined` "
        "(from sluice import joined), or compare records of one input in groupBy or transformWithState"
    ),
    "are ambiguous. It's probably because you joined": (
        "both sides of a join have the column; rename the columns of one side before the join. A window "
        'after `joined` takes F.window("joined_time", …). An input cannot be joined with itself: compare its '
        "records in groupBy or transformWithState"
    ),
    r"Reference (`[^`]+`) is ambiguous": (
        'both sides of a join have the column {}; name its side, such as hits["id"], '
        "or rename the column before the join"
    ),
    "name `lineage` cannot be resolved": (
        "a tier with state has no column `lineage`, because a row is made of many records; remove it"
    ),
    r"name (`[^`]+`) cannot be resolved\. Did you mean one of the following\? \[(.*?)\]": (
        "there is no column {}; the nearest are {}"
    ),
    r"Cannot resolve \"(?:session_)?window\(": (
        "a window needs a time: in a tier with state use the column `time`, such as "
        'F.window("time", "10 minutes"); elsewhere make one of epoch ms with F.timestamp_millis'
    ),
    "EVENT_TIME_IS_NOT_ON_TIMESTAMP_TYPE": f"withWatermark is not needed; {_WATERMARK}",
    "monotonically_increasing_id": (
        "monotonically_increasing_id would number the records anew in each batch; a record has its own name "
        "in lineage.origin; several records of one get an `index` by posexplode"
    ),
    "Multiple time/session window expressions": (
        "groupBy takes one F.window; count by the smaller window, and add up by the larger one in a second "
        'groupBy, over F.window_time("window")'
    ),
    r"joined\(\) missing .*'within'": (
        "joined needs `within`, the seconds between the two records, or its state would never end: "
        "within=(-R, L) keeps a right row for R seconds and a left row for L, as a TTL would"
    ),
    "pandas-on-Spark does not support": (
        "pandas_api cannot run on a stream; write it with pyspark.sql.functions"
    ),
    "`__setitem__` is not supported": (
        'a DataFrame cannot be changed; write records = records.withColumn("x", …)'
    ),
}
"""A pattern in Spark's own text, and what Sluice says instead, with the groups of the pattern."""


def without_state(operator: str, mode: Mode) -> str:
    """Say why a tier without state cannot use an operator, and what to write instead."""
    words = _OPERATORS.get(operator)
    written = operator if words is None else words.written
    rule = (
        f"{written} cannot run in mode realtime, which makes records of each record by itself"
        if mode is Mode.REALTIME
        else f"{written} does not keep records one by one and in order, so Sluice could not tell replays "
        "from new records"
    )
    return f"{rule}; {'remove it' if words is None else words.without_state}"


def python_in_realtime() -> str:
    """Say why a realtime tier cannot call Python, and what to write instead."""
    return (
        f"{PYTHON_FUNCTION} cannot run in mode realtime; write it with pyspark.sql.functions, "
        "or set mode=Mode.BATCH"
    )


def with_state(operator: str) -> str:
    """Say why a tier with state cannot use an operator, and what to write instead."""
    words = _OPERATORS.get(operator)
    if words is None:
        return (
            f"{operator} cannot run on a stream; a tier with state may aggregate by window or key, join its "
            "inputs, drop duplicates and use transformWithState"
        )
    rule = "is not needed" if operator == "EventTimeWatermark" else "cannot run on a stream"
    return f"{words.written} {rule}; {words.with_state}"


def on_table(operator: str) -> str:
    """Say why a realtime tier cannot use an operator on a table that it joins."""
    words = _OPERATORS.get(operator)
    return (
        f"{operator if words is None else words.written}, on a table that the transform joins, is not "
        "allowed in mode realtime; store the table as it is joined, and load that; or set mode=Mode.BATCH"
    )


def leaves_out(written: str) -> str:
    """Say that a transform leaves records out, although its tier does not say so."""
    return (
        f"the transform leaves records out ({written}); "
        "set filters=True, or the audit reports these records as lost; "
        'or keep the records with a "reason", which sends them to quarantine'
    )


def join(kind: str) -> str:
    """Return what an author calls a join; `kind` is Spark's SQL for its type."""
    return _JOINS.get(kind, f"a join ({kind.lower()})")


def keeps_table(kind: str) -> str:
    """Say why a join cannot keep rows of a table that no record made."""
    return f"{join(kind)} would keep rows of the table; {_OF_TABLE}"


def union_with_table() -> str:
    """Say why a table cannot be added to the records."""
    return f"union adds rows of a table, which no record made; send them as records of an input, or {_TABLE}"


def reads_twice(written: str) -> str:
    """Say why a tier without state cannot read its records twice."""
    return (
        f"{written} reads the records twice, so some records would come out after later ones and be dropped "
        f"as replays; {_SEVERAL}; to compare a record with others, give the tier state, and aggregate or use "
        "transformWithState"
    )


def subquery(written: str) -> str:
    """Say why a tier without state cannot use a subquery that Spark makes a join of."""
    return (
        f"{written} is a join, and Spark may sort the records for it; records that come out after later ones "
        "would be dropped as replays; write records.join(F.broadcast(table), …, how=…): how='left_semi' for "
        "IN and EXISTS, 'left_anti' for NOT, 'left' for a value"
    )


def self_join(stream: str) -> str:
    """Say why an input cannot be joined with itself."""
    return (
        f'the transform joins the input "{stream}" with itself, but a join needs two inputs; compare its '
        "records in one state: F.max_by, or F.max or F.collect_list of a F.struct, in groupBy; "
        "or transformWithState"
    )


def stream_join(kind: str) -> str:
    """Say why two inputs cannot be joined so, and what to write instead."""
    instead = _STREAM_JOINS.get(kind, _INNER)
    return (
        f"{join(kind)} of two inputs would not count the records without a partner; use `joined` "
        f"(from sluice import joined): {instead}"
    )


def of_spark(text: str) -> str:
    """Return what Sluice says instead of an error of Spark, or the error's first line."""
    for pattern, sentence in _SPARKS_WORDS.items():
        if match := re.search(pattern, text):
            return sentence.format(*match.groups())
    lines = text.splitlines()
    if lines and lines[0].endswith("Exception:"):  # the error begins on the next line
        lines = [" ".join(lines[:2])]
    return lines[0].rstrip(";") if lines else text
