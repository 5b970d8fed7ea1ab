"""What tiers with state hold in Spark, read off their analysed plans when a release is published: a checkpoint takes no other.

Spark compares the types of what a store holds, but only when a query begins on the checkpoint, and never what a window's width is.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql import SparkSession

from sluice.api.declarations import Tier
from sluice.checks.operators import state_plan
from sluice.records.state_inputs import NAME

WITHIN = "DeduplicateWithinWatermark"
HOLDS = frozenset(
    {"Aggregate", "Deduplicate", WITHIN, "Distinct", "TransformWithState", "TransformWithStateInPySpark"}
)
"""Operators that keep something from batch to batch, besides joins of streams."""
WINDOW = re.compile(
    r"named_struct\(start, .*?precisetimestampconversion\((?P<time>[^,(]+), .*? - (?P<offset>\d+)\) % (?P<slide>\d+)\)"
    r".* \+ (?P<width>\d+)\), LongType, TimestampType\)\)\)",
    re.DOTALL,
)
"""What Spark makes of a window, which is many lines of it. Unit of its numbers: microseconds."""


def held(session: SparkSession, tier: Tier) -> tuple[str, ...]:
    """Return what one tier holds, operator by operator."""
    plan = state_plan(session, tier)._jdf.queryExecution().analyzed()  # noqa: SLF001 — there is no public way to the analysed plan
    nodes = list(_own(plan))
    made = {number: text for node in nodes for number, text in _made(node)}
    return tuple(_said(node, made) for node in nodes if _holds(node))


def _own(plan: Any) -> Iterable[Any]:
    """Yield the operators that the tier's transform is made of, from the result downwards."""
    if plan.getClass().getSimpleName() == WITHIN and NAME in plan.keys().toString():
        return  # where the platform drops replays: all below is its own
    yield plan
    for child in _sequence(plan.children()):
        yield from _own(child)


def _holds(node: Any) -> bool:
    name = node.getClass().getSimpleName()
    return name in HOLDS or (
        name == "Join" and all(child.isStreaming() for child in _sequence(node.children()))
    )


def _made(node: Any) -> Iterable[tuple[str, str]]:
    """Yield the columns that an operator makes: the number that Spark gives each, and what it is made of."""
    kind = node.getClass().getSimpleName()
    if kind == "Project":
        for expression in _sequence(node.expressions()):
            if found := re.fullmatch(
                r"(?P<made>.+) AS .+?#(?P<number>\d+)L?\S*", expression.toString(), re.DOTALL
            ):
                yield found["number"], window(found["made"])
    elif kind == "Expand":  # of windows that overlap
        rows = [[window(each.toString()) for each in _sequence(row)] for row in _sequence(node.projections())]
        for column, ways in zip(_sequence(node.output()), zip(*rows, strict=True), strict=True):
            yield str(column.exprId().id()), " or ".join(dict.fromkeys(ways))


def window(text: str) -> str:
    """Say a window in few words; leave all else as it is. Pure."""
    found = WINDOW.fullmatch(text)
    return (
        text
        if found is None
        else "window({time}, width {width}, every {slide}, offset {offset})".format(**found.groupdict())
    )


def _said(node: Any, made: Mapping[str, str]) -> str:
    said = ", ".join(
        dict.fromkeys(plain(expression.toString(), made) for expression in _sequence(node.expressions()))
    )
    kind = f" {node.joinType().sql()}" if node.getClass().getSimpleName() == "Join" else ""
    return f"{node.getClass().getSimpleName()}{kind} of {said}"


def plain(text: str, made: Mapping[str, str]) -> str:
    """Put what columns are made of in their place, and take Spark's own numbers and marks away: they differ from plan to plan. Pure."""

    def put(found: re.Match[str]) -> str:
        number = found["number"]
        return (
            plain(made[number], {each: of for each, of in made.items() if each != number})
            if number in made
            else found["name"]
        )

    without = re.sub(r" AS [^,()\[\]]+?#\d+L?(-T\d+ms)?", "", text)
    named = re.sub(r"(?P<name>[A-Za-z_][\w.]*)#(?P<number>\d+)L?(-T\d+ms)?", put, without)
    return re.sub(r"#\d+L?", "", named)


def _sequence(items: Any) -> list[Any]:
    return [items.apply(index) for index in range(items.size())]
