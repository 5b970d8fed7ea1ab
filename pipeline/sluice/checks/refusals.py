"""Why a tier cannot use an operator of Spark: in the author's words, with what to write instead.

Pure.
"""

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
_GROUPS = "transformWithState, or an aggregation"
_AGGREGATE = _Words("groupBy(…)", _KEEP, "aggregate by window or key")
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
    "a function of columns: F.pandas_udf",
)
_GROUPED = _Words("groupBy(…).applyInPandas", "give the tier state, and use transformWithState", _GROUPS)
_MINUS = _Words(
    "subtract, exceptAll or intersect",
    "compare with a small table: a join with F.broadcast(table), how='left'",
    "compare streams by `joined` (from sluice import joined)",
)
_OWN_STATE = _Words("transformWithState", "give the tier state: state=State(lateness=…)", "")
_OPERATORS = {
    "Aggregate": _AGGREGATE,
    "Deduplicate": _DUPLICATES,
    "DeduplicateWithinWatermark": _DUPLICATES._replace(written="dropDuplicatesWithinWatermark"),
    "Distinct": _DUPLICATES,
    "EventTimeWatermark": _Words("withWatermark", _WATERMARK, _WATERMARK),
    "Except": _MINUS,
    "Expand": _Words("an overlapping window, rollup or cube", _KEEP, _GROUPS),
    "FlatMapGroupsInArrow": _GROUPED._replace(written="groupBy(…).applyInArrow"),
    "FlatMapGroupsInPandas": _GROUPED,
    "FlatMapGroupsInPandasWithState": _GROUPED._replace(written="applyInPandasWithState"),
    "GlobalLimit": _LIMITED,
    "Intersect": _MINUS,
    "LocalLimit": _LIMITED,
    "MapInArrow": _MAPS,
    "MapInPandas": _MAPS,
    "Offset": _LIMITED._replace(written="offset"),
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
        "groupBy with F.window, F.max_by or F.min_by; or transformWithState",
    ),
}
PYTHON_FUNCTION = "a Python function (F.udf or F.pandas_udf)"
_SPARKS_WORDS = {
    "Detected pattern of possible 'correctness' issue": (
        "rows of an aggregation or a join are not final at once, so an operator with state cannot follow, "
        "except an aggregation by F.window over F.window_time of the first one's window; "
        "otherwise do both steps by transformWithState"
    ),
    "is not supported for streaming aggregations without watermark": (
        "an aggregation after another step with state needs windows, so that rows of the first step become "
        "final: group by F.window in both, in the second one over F.window_time of the first one's window; "
        "or do both steps by transformWithState"
    ),
    "must be executed with writeStream.start()": (
        "the transform asks for a result (collect, count, show, toPandas …), but a stream never ends; "
        "remove the call, or use it on a table that the transform loads itself"
    ),
    "pivot is not supported on a streaming": (
        'pivot needs all records; name the values: F.sum(F.when(F.col("kind") == "buy", 1))'
    ),
}
"""A part of Spark's own text, and what Sluice says instead."""


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
    return f"{words.written} cannot run on a stream; {words.with_state}"


def of_spark(text: str) -> str:
    """Return what Sluice says instead of an error of Spark, or the error's first line."""
    sentences = (sentence for part, sentence in _SPARKS_WORDS.items() if part in text)
    return next(sentences, text.partition("\n")[0].rstrip(";"))
