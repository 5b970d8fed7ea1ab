"""The stateful operators of a tier, from the analysed plan: a checkpoint fits no other operators.

Publishing keeps them in the release. Spark itself compares only the types in a state store, only
when a query starts on the checkpoint, and never the width of a window.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql import SparkSession

from sluice.api.declarations import Tier
from sluice.checks.operators import WITHIN, nodes_of_transform, state_plan
from sluice.checks.state_variables import noted, variables

STATEFUL = frozenset(
    {"Aggregate", "Deduplicate", WITHIN, "Distinct", "TransformWithState", "TransformWithStateInPySpark"}
)
"""Operators that keep state from batch to batch, besides joins of streams."""
WINDOW = re.compile(
    r"named_struct\(start, .*?precisetimestampconversion\((?P<time>[^,()]+(\(\w+\)#\d+)?)(-T\d+ms)?, "
    r".*? - (?P<offset>\d+)\) % (?P<slide>\d+)\)"
    r".* \+ (?P<width>\d+)\), LongType, TimestampType\){3,4}",
    re.DOTALL,
)
"""A window as Spark's plan prints it, on many lines. Unit of the numbers: microseconds."""


def state_operators(session: SparkSession, tier: Tier) -> tuple[str, ...]:
    """Return a description of each operator of a tier that keeps state, and of each variable of its
    own state.
    """
    with noted() as steps:
        plan = state_plan(session, tier)._jdf.queryExecution().analyzed()  # noqa: SLF001 — no public API
    nodes = list(nodes_of_transform(plan))
    definitions = {number: text for node in nodes for number, text in _definitions(node)}
    operators = (_description(node, definitions) for node in nodes if _keeps_state(node))
    return (*operators, *variables(steps))


def _keeps_state(node: Any) -> bool:
    name = node.getClass().getSimpleName()
    return name in STATEFUL or (
        name == "Join" and all(child.isStreaming() for child in _sequence(node.children()))
    )


def _definitions(node: Any) -> Iterable[tuple[str, str]]:
    """Yield, for each column that an operator defines, Spark's number of the column and its
    expression.
    """
    kind = node.getClass().getSimpleName()
    if kind == "Project":
        for expression in _sequence(node.expressions()):
            if match := re.fullmatch(
                r"(?P<expression>.+) AS .+?#(?P<number>\d+)L?\S*", expression.toString(), re.DOTALL
            ):
                yield match["number"], short_window(match["expression"])
    elif kind == "Expand":  # windows that overlap
        rows = [
            [short_window(expression.toString()) for expression in _sequence(row)]
            for row in _sequence(node.projections())
        ]
        for column, windows in zip(_sequence(node.output()), zip(*rows, strict=True), strict=True):
            yield str(column.exprId().id()), " or ".join(dict.fromkeys(windows))


def short_window(text: str) -> str:
    """Shorten the expression of a window; return any other expression unchanged. Pure."""
    match = WINDOW.fullmatch(text)
    return (
        text
        if match is None
        else "window({time}, width {width}, every {slide}, offset {offset})".format(**match.groupdict())
    )


def _description(node: Any, definitions: Mapping[str, str]) -> str:
    expressions = ", ".join(
        dict.fromkeys(
            without_numbers(expression.toString(), definitions) for expression in _expressions(node)
        )
    )
    kind = f" {node.joinType().sql()}" if node.getClass().getSimpleName() == "Join" else ""
    return f"{node.getClass().getSimpleName()}{kind} of {expressions}"


def _expressions(node: Any) -> list[Any]:
    """Return the expressions of an operator that its state depends on.

    `joined` adds to a condition that it is not null. Releases of former versions lack this part.
    """
    expressions = _sequence(node.expressions())
    if node.getClass().getSimpleName() != "Join":
        return expressions
    return [
        condition.left()
        if condition.getClass().getSimpleName() == "And"
        and condition.right().getClass().getSimpleName() == "IsNotNull"
        else condition
        for condition in expressions
    ]


def without_numbers(text: str, definitions: Mapping[str, str]) -> str:
    """Replace columns by their definitions, and remove Spark's column numbers and suffixes. Pure.

    The numbers differ from plan to plan.
    """

    def definition(column: re.Match[str]) -> str:
        number = column["number"]
        return (
            without_numbers(
                definitions[number], {other: text for other, text in definitions.items() if other != number}
            )
            if number in definitions
            else column["name"]
        )

    without_aliases = re.sub(r" AS [^,()\[\]]+?#\d+L?(-T\d+ms)?", "", text)
    replaced = re.sub(r"(?P<name>[A-Za-z_][\w.]*)#(?P<number>\d+)L?(-T\d+ms)?", definition, without_aliases)
    return re.sub(r"#\d+L?", "", replaced)


def _sequence(items: Any) -> list[Any]:
    return [items.apply(index) for index in range(items.size())]
