"""Whether a tier may be handed over from one release to another.

The new code must still fit the tiers that read or write the same streams, the sink's table and the
saved state. The kind `upgrade` and starts from a savepoint call this module.
"""

from collections.abc import Iterable, Mapping

from sluice_ops.model.ids import TierName
from sluice_ops.model.release import SinkShape, StateShape, StreamShape, TierShape, comparable

REBUILT = (
    ": after such an upgrade, the state is built again from the tier's first record on, "
    "if Kafka still has that record, and rows of other keys stay in the table"
)
"""What an upgrade to code with another state does; a savepoint is never used by such code."""


def incompatibilities(
    tier: TierName, before: TierShape, after: TierShape, others: Mapping[TierName, TierShape]
) -> list[str]:
    """Return the reasons against the handover; `others` are the other tiers as they run now."""
    return [
        *_inputs(before.inputs, after.inputs),
        *_read(tier, after, others),
        *_outputs(before.outputs, after.outputs),
        *_written(tier, before, after, others),
        *_sinks(before, after),
        *_state(before.state, after.state),
    ]


def _inputs(before: tuple[StreamShape, ...], after: tuple[StreamShape, ...]) -> Iterable[str]:
    old_names, new_names = [stream.name for stream in before], [stream.name for stream in after]
    if new_names[: len(old_names)] != old_names:
        yield (
            f"the new code reads {', '.join(new_names)}, and the old code {', '.join(old_names)}: "
            "keep every input, and add new inputs at the end"
        )


def _read(tier: TierName, after: TierShape, others: Mapping[TierName, TierShape]) -> Iterable[str]:
    """Name the columns that the new code reads and no running tier writes."""
    for writer, shape in others.items():
        written = {stream.name: stream for stream in shape.outputs}
        for stream in after.inputs:
            if writer != tier and stream.name in written:
                if stream.format != written[stream.name].format:
                    yield _other_format(stream, f"{writer} writes it", written[stream.name])
                for column in _missing_columns(stream.columns, written[stream.name].columns):
                    yield (
                        f"the new code reads {column} of {stream.name}, which {writer} does not write as it "
                        f"runs now; upgrade {writer} first"
                    )


def _outputs(before: tuple[StreamShape, ...], after: tuple[StreamShape, ...]) -> Iterable[str]:
    new_streams = {stream.name: stream for stream in after}
    for stream in before:
        new = new_streams.get(stream.name)
        if new is not None and new.grouping != stream.grouping:
            yield (
                f"{stream.name} is grouped by {new.grouping}, and was grouped by {stream.grouping}: "
                "replays would take another path"
            )


def _written(
    tier: TierName, before: TierShape, after: TierShape, others: Mapping[TierName, TierShape]
) -> Iterable[str]:
    """Name the streams and columns that running tiers read and the new code does not write."""
    written = {stream.name: stream for stream in after.outputs}
    gone = {stream.name for stream in before.outputs} - set(written)
    for reader, shape in others.items():
        if reader == tier:
            continue
        for stream in shape.inputs:
            if stream.name in gone:
                yield (
                    f"{reader} reads {stream.name} as it runs now, which the new code does not write; "
                    f"upgrade {reader} first"
                )
            if stream.name in written:
                if stream.format != written[stream.name].format:
                    yield _other_format(written[stream.name], f"{reader} reads it", stream)
                for column in _missing_columns(stream.columns, written[stream.name].columns):
                    yield (
                        f"{reader} reads {column} of {stream.name} as it runs now, which the new code does "
                        f"not write; upgrade {reader} first"
                    )


def _other_format(new: StreamShape, other: str, running: StreamShape) -> str:
    return (
        f"{new.name} is in {new.format or 'JSON'} in the new code, but {other} in "
        f"{running.format or 'JSON'} as it runs now, and the stream has such records; "
        "use a new stream for the new format"
    )


def _missing_columns(read: Mapping[str, str] | None, written: Mapping[str, str] | None) -> Iterable[str]:
    """Name the columns of `read` that `written` lacks, or has with another type."""
    for name, kind in (read or {}).items():
        written_kind = (written or {}).get(name)
        if written_kind is None:
            yield f"column {name}"
        elif written_kind != kind:
            yield f"column {name} as {kind} (it is written as {written_kind})"


def _sink(before: SinkShape | None, after: SinkShape | None) -> Iterable[str]:
    if before is None or after is None:
        if before is not after:
            yield (
                f"the new code writes into {_name_of(after)}, and the old code into {_name_of(before)}: "
                "the place where the new output continues the old one is unknown"
            )
        return
    if (before.kind, before.name) != (after.kind, after.name):
        yield (
            f"the new code writes into {_name_of(after)}, and the old code into {_name_of(before)}, which "
            "has the output so far"
        )
        return
    if before.key != after.key:
        yield (
            f"the key of {after.name} is {', '.join(after.key)}, and was {', '.join(before.key)}: "
            "existing rows would not be found"
        )
    for column, kind in before.columns.items():
        if column not in after.columns:
            yield f"{after.name} has column {column}, which the new code does not fill"
        elif after.columns[column] != kind:
            yield (
                f"column {column} of {after.name} is {kind}, and the new code declares it as "
                f"{after.columns[column]}; declare {kind}, or a new column of another name"
            )


def _sinks(before: TierShape, after: TierShape) -> Iterable[str]:
    """Compare all sinks; the new code may have more."""
    new = {sink.name: sink for sink in after.sinks}
    if before.sink is not None and before.sink.name in {sink.name for sink in after.more_sinks}:
        yield f"{before.sink.name} is no longer the first sink, whose rows the ledger counts; name it first"
    else:
        yield from _sink(before.sink, after.sink)
    for sink in before.more_sinks:
        if sink.name in new:
            yield from _sink(sink, new[sink.name])
        else:
            yield f"the new code does not write {_name_of(sink)}, so its output would end; keep this sink"


def _name_of(sink: SinkShape | None) -> str:
    return "streams" if sink is None else f"{sink.kind} {sink.name}"


def _state(before: StateShape | None, after: StateShape | None) -> Iterable[str]:
    if before is None or after is None:
        if before is not after:
            yield (
                "the new code holds state in Spark, and the old code held none"
                if before is None
                else "the new code holds no state in Spark, and the old code held some"
            )
        return
    if before.lateness != after.lateness:
        yield (
            f"records are late after {after.lateness} s, and were late after {before.lateness} s: "
            "old and new code would count differently"
        )
    if before.time != after.time:
        yield (
            f"the time of a record is {after.time or 'its arrival'}, and was "
            f"{before.time or 'its arrival'}: windows would mix the two"
        )
    new_parts, old_parts = comparable(after.operators, before.operators)
    if new_parts != old_parts:
        new = [part for part in new_parts if part not in old_parts]
        old = [part for part in old_parts if part not in new_parts]
        yield (
            f"the state of the new code holds {'; '.join(new) or 'less'}, and the checkpoint holds "
            f"{'; '.join(old) or 'less'}{REBUILT}"
        )
