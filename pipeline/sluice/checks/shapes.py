"""Shapes: the parts of each tier's declaration that other tiers, sinks and checkpoints rely on.

A release contains the shapes of its tiers; publishing calls this module. Pure.
"""

import re
from collections.abc import Iterable, Mapping

from sluice.api.declarations import DeclarationError, Pipeline, Stream, Tier
from sluice.sinks.table import Latest, Totals
from sluice_ops.model.ids import TierName
from sluice_ops.model.release import SinkShape, StateShape, StreamShape, TierShape

ALIASES = {
    "int": "integer",
    "long": "bigint",
    "short": "smallint",
    "byte": "tinyint",
    "real": "float",
    "dec": "decimal",
    "numeric": "decimal",
}
"""Spark's aliases of types → the names of the types."""
OPENS, CLOSES = "<(", ">)"
NAMED = re.compile(
    r"\s*(?:`(?P<quoted>[^`]+)`|(?P<plain>[^\s:`]+))(?:\s*:\s*|\s+)(?P<kind>\S.*?)\s*", re.DOTALL
)
SUFFIX = re.compile(r"\s+(not\s+null|comment\s+(['\"]).*\2)\s*$", re.IGNORECASE | re.DOTALL)
"""Text after a type that is not part of the type."""


def shapes(pipeline: Pipeline, operators: Mapping[str, tuple[str, ...]]) -> dict[TierName, TierShape]:
    """Return the shape of each tier; `operators` are the stateful operators by tier."""
    return {TierName(tier.name): shape(tier, operators.get(tier.name, ())) for tier in pipeline.tiers}


def shape(tier: Tier, operators: tuple[str, ...]) -> TierShape:
    """Return the shape of one tier; DeclarationError if a stream's columns cannot be parsed."""
    sink, state = tier.sink, tier.state
    return TierShape(
        inputs=tuple(_stream(stream) for stream in tier.inputs),
        outputs=tuple(_stream(stream) for stream in tier.outputs),
        sink=None
        if sink is None
        else SinkShape(
            kind=type(sink).__name__,
            name=sink.name,
            columns={name: kind.lower() for name, kind in sink.columns.items()},
            key=sink.key if isinstance(sink, Totals | Latest) else (),
        ),
        state=None
        if state is None
        else StateShape(lateness=state.lateness, time=state.time, operators=operators),
    )


def _stream(stream: Stream) -> StreamShape:
    kinds = None if stream.columns is None else columns(stream.columns)
    return StreamShape(name=stream.name, columns=kinds, grouping=repr(stream.grouping))


def columns(text: str) -> dict[str, str]:
    """Parse columns that are written as SQL, such as `id string, at bigint`: name → type.

    Raise DeclarationError if a part is not a name and a type.
    """
    kinds: dict[str, str] = {}
    for part in _parts(text):
        named = NAMED.fullmatch(part)
        if named is None:
            message = (
                f"columns {text!r}: {part.strip()!r} is not a name and a type; "
                "write columns like `id string, at bigint`"
            )
            raise DeclarationError(message)
        kinds[named["quoted"] or named["plain"]] = _kind(named["kind"])
    return kinds


def _kind(text: str) -> str:
    while (shorter := SUFFIX.sub("", text)) != text:
        text = shorter
    return re.sub(r"[a-z]+", lambda word: ALIASES.get(word[0], word[0]), re.sub(r"\s+", "", text.lower()))


def _parts(text: str) -> Iterable[str]:
    """Split at the commas outside brackets and quotes."""
    depth, begin, quote = 0, 0, ""
    for at, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "`'\"":
            quote = letter
        elif letter in OPENS:
            depth += 1
        elif letter in CLOSES:
            depth -= 1
        elif letter == "," and depth == 0:
            yield text[begin:at]
            begin = at + 1
    yield text[begin:]
