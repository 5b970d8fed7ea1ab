"""Shapes: the parts of each tier's declaration that other tiers, sinks and checkpoints rely on.

A release contains the shapes of its tiers; publishing calls this module. Pure.
"""

from collections.abc import Mapping

from sluice.api import column_types
from sluice.api.declarations import DeclarationError, Pipeline, Stream, Tier
from sluice.api.sink import Sink
from sluice.sinks.table import Latest, Totals
from sluice_ops.model.ids import TierName
from sluice_ops.model.release import SinkShape, StateShape, StreamShape, TierShape


def shapes(pipeline: Pipeline, operators: Mapping[str, tuple[str, ...]]) -> dict[TierName, TierShape]:
    """Return the shape of each tier; `operators` are the stateful operators by tier."""
    return {TierName(tier.name): shape(tier, operators.get(tier.name, ())) for tier in pipeline.tiers}


def shape(tier: Tier, operators: tuple[str, ...]) -> TierShape:
    """Return the shape of one tier; DeclarationError if a stream's columns cannot be parsed."""
    state, sinks = tier.state, tuple(_sink(sink) for sink in tier.sinks)
    return TierShape(
        inputs=tuple(_stream(stream) for stream in tier.inputs),
        outputs=tuple(_stream(stream) for stream in tier.outputs),
        sink=sinks[0] if sinks else None,
        more_sinks=sinks[1:],
        light=tier.light,
        state=None
        if state is None
        else StateShape(lateness=state.lateness, time=state.time, operators=operators),
    )


def _sink(sink: Sink) -> SinkShape:
    return SinkShape(
        kind=type(sink).__name__,
        name=sink.name,
        columns={name: kind.lower() for name, kind in sink.columns.items()},
        key=sink.key if isinstance(sink, Totals | Latest) else (),
    )


def _stream(stream: Stream) -> StreamShape:
    kinds = None if stream.columns is None else columns(stream.columns)
    return StreamShape(
        name=stream.name,
        columns=kinds,
        grouping=repr(stream.grouping),
        format=None if stream.format is None else type(stream.format).__name__,
    )


def columns(text: str) -> dict[str, str]:
    """Parse the columns of a stream, as `column_types.columns` does; errors: DeclarationError."""
    try:
        return column_types.columns(text)
    except ValueError as error:
        raise DeclarationError(str(error)) from error
