"""Whether a tier may be handed over from one release to another: what others rely on is held against what there is.

Called by `refusals`.
"""

from collections.abc import Iterable, Mapping

from sluice_ops.model.ids import TierName
from sluice_ops.model.release import SinkShape, StateShape, StreamShape, TierShape


def problems(
    tier: TierName, before: TierShape, after: TierShape, others: Mapping[TierName, TierShape]
) -> list[str]:
    """Name what stands against it; `others` are the tiers beside it as each of them runs now."""
    return [
        *_inputs(before.inputs, after.inputs),
        *_read(tier, after, others),
        *_outputs(before.outputs, after.outputs),
        *_written(tier, before, after, others),
        *_sink(before.sink, after.sink),
        *_state(before.state, after.state),
    ]


def _inputs(before: tuple[StreamShape, ...], after: tuple[StreamShape, ...]) -> Iterable[str]:
    names, wanted = [stream.name for stream in before], [stream.name for stream in after]
    if wanted[: len(names)] != names:
        yield f"it reads {', '.join(wanted)}, and has read {', '.join(names)}: new inputs are added at the end, and none goes"


def _read(tier: TierName, after: TierShape, others: Mapping[TierName, TierShape]) -> Iterable[str]:
    """Name the columns that it wants to read and nobody writes."""
    for writer, shape in others.items():
        written = {stream.name: stream for stream in shape.outputs}
        for stream in after.inputs:
            if writer != tier and stream.name in written:
                for lack in _lacks(stream.columns, written[stream.name].columns):
                    yield f"it reads {lack} of {stream.name}, which {writer} does not write as it runs now; upgrade {writer} first"


def _outputs(before: tuple[StreamShape, ...], after: tuple[StreamShape, ...]) -> Iterable[str]:
    wanted = {stream.name: stream for stream in after}
    for stream in before:
        new = wanted.get(stream.name)
        if new is not None and new.grouping != stream.grouping:
            yield f"{stream.name} is grouped by {new.grouping}, and was by {stream.grouping}: replays would take another path"


def _written(
    tier: TierName, before: TierShape, after: TierShape, others: Mapping[TierName, TierShape]
) -> Iterable[str]:
    """Name the streams and columns that others read and it would no longer write."""
    written = {stream.name: stream for stream in after.outputs}
    gone = {stream.name for stream in before.outputs} - set(written)
    for reader, shape in others.items():
        if reader == tier:
            continue
        for stream in shape.inputs:
            if stream.name in gone:
                yield f"{reader} reads {stream.name} as it runs now, which it would not write; upgrade {reader} first"
            if stream.name in written:
                for lack in _lacks(stream.columns, written[stream.name].columns):
                    yield f"{reader} reads {lack} of {stream.name} as it runs now, which it would not write; upgrade {reader} first"


def _lacks(read: Mapping[str, str] | None, written: Mapping[str, str] | None) -> Iterable[str]:
    """Name the columns of `read` that are missing, or of another type."""
    for name, kind in (read or {}).items():
        there = (written or {}).get(name)
        if there is None:
            yield f"column {name}"
        elif there != kind:
            yield f"column {name} as {kind} (it is {there} there)"


def _sink(before: SinkShape | None, after: SinkShape | None) -> Iterable[str]:
    if before is None or after is None:
        if before is not after:
            yield f"it ends in {_called(after)}, and did in {_called(before)}: nothing says where the one goes on from the other"
        return
    if (before.kind, before.name) != (after.kind, after.name):
        yield f"it ends in {_called(after)}, and did in {_called(before)}, which has what came so far"
        return
    if before.key != after.key:
        yield f"the key of {after.name} is {', '.join(after.key)}, and was {', '.join(before.key)}: rows that are there would not be found"
    for lack in _lacks(before.columns, after.columns):
        yield f"{after.name} has {lack}, which it would not fill"


def _called(sink: SinkShape | None) -> str:
    return "streams" if sink is None else f"{sink.kind} {sink.name}"


def _state(before: StateShape | None, after: StateShape | None) -> Iterable[str]:
    if before is None or after is None:
        if before is not after:
            yield (
                "it holds state in Spark, and held none"
                if before is None
                else "it holds no state, and held some in Spark"
            )
        return
    if before.lateness != after.lateness:
        yield f"records are late after {after.lateness} s, and were after {before.lateness} s: the two would count differently"
    if before.time != after.time:
        yield f"the time of a record is {after.time or 'its arrival'}, and was {before.time or 'its arrival'}: windows would mix the two"
    if before.operators != after.operators:
        new = [each for each in after.operators if each not in before.operators]
        old = [each for each in before.operators if each not in after.operators]
        yield (
            f"its state would hold {'; '.join(new) or 'less'}, and the checkpoint holds {'; '.join(old) or 'less'}: started with that, "
            f"it is made again from the tier's first record on, if that is still there, and rows of other keys stay in the table"
        )
