"""The history: posted changes with their steps, starts and stops of tiers, and their results."""

from sluice_ops.channel import Channel
from sluice_ops.model import paths
from sluice_ops.model.change import ChangeKind, ChangeRecord, ChangeState, Operation, Step
from sluice_ops.model.incarnation import IncarnationSpec, Timed
from sluice_ops.operations.connect import open_channel
from sluice_ops.operations.requests import operation_id, read_journal, read_result
from sluice_ops.operations.snapshot import snapshot
from sluice_ops.planning.changes.kinds import KINDS
from sluice_ops.planning.placement.pace import requested_starts_and_stops, widest_gap
from sluice_ops.queries.formats import subject
from sluice_ops.queries.lines import ChangeLine, OperationLine
from sluice_ops.snapshot.view import View


def history(change: str | None, last: int) -> list[OperationLine]:
    """Return the newest operations, the newest last.

    With `change`, return only the operations of this change or operation, with journals.
    """
    with open_channel() as channel:
        names = channel.children("/operations")
        operations = [
            read.value
            for name in names
            if (read := channel.read(paths.operation(name), Operation)) is not None
        ]
        operations.sort(key=lambda operation: operation.posted_at)
        if change is not None:
            operations = [operation for operation in operations if change in {operation.change, operation.id}]
        return [_line(channel, operation, journal=change is not None) for operation in operations[-last:]]


def steps_of(channel: Channel, record: ChangeRecord) -> list[OperationLine]:
    """Return the posted steps of a change in their order, with journals, and its abort if any."""
    steps = (*KINDS[record.spec.kind].steps, Step.ABORT)
    names = [paths.operation(operation_id(record.id, step)) for step in steps]
    posted = [read.value for read in channel.read_many(names, Operation) if read is not None]
    return [_line(channel, operation, journal=True) for operation in posted]


def changes(last: int) -> list[ChangeLine]:
    """Return the newest changes, starts and stops, the newest last."""
    return changes_of(snapshot(), last)


def changes_of(view: View, last: int) -> list[ChangeLine]:
    """Return the newest changes, starts and stops of a snapshot, the newest last."""
    incarnations = (spec for tier in view.tiers.values() for spec in tier.incarnations.values())
    lines = [
        *(change_line(record) for record in view.changes.values()),
        *(_timed(*each) for each in requested_starts_and_stops(incarnations)),
    ]
    return sorted(lines, key=lambda line: line.started_at)[-last:]


def _timed(kind: ChangeKind, timed: Timed, spec: IncarnationSpec) -> ChangeLine:
    unfinished = ChangeState.ABORTED if spec.retired else ChangeState.ACTIVE
    return ChangeLine(
        id=f"{kind}-{spec.tier}-{spec.incarnation}",
        what=f"{kind} {spec.tier}",
        by=timed.by,
        state=unfinished if timed.seconds is None else ChangeState.DONE,
        started_at=timed.at,
        predicted_seconds=timed.predicted_seconds,
        seconds=timed.seconds,
        predicted_gap_seconds=None,
        gap_seconds=None,
        steps={},
    )


def change_line(record: ChangeRecord) -> ChangeLine:
    """Describe a change."""
    return ChangeLine(
        id=record.id,
        what=f"{record.spec.kind} {subject(record.spec)}".strip(),
        by=record.by,
        state=record.state,
        started_at=record.started_at,
        predicted_seconds=None
        if record.plan.unpredicted and not record.plan.predicted_seconds
        else record.plan.predicted_seconds,
        seconds=None if record.ended_at is None else record.ended_at - record.started_at,
        predicted_gap_seconds=record.plan.predicted_gap_seconds,
        gap_seconds=widest_gap(record),
        steps={str(step): round(seconds, 1) for step, seconds in record.took.items()},
        abort_predicted_seconds=record.abort_predicted_seconds,
    )


def _line(channel: Channel, operation: Operation, *, journal: bool) -> OperationLine:
    result = read_result(channel, operation.id)
    entries = read_journal(channel, operation.id)
    state = "waiting" if result is None else ("done" if result.ok else "failed")
    sentence = (
        result.sentence
        if result is not None
        else (entries[-1].sentence if entries else "posted; no controller has begun it")
    )
    return OperationLine(
        id=operation.id,
        change=operation.change,
        kind=operation.spec.kind,
        subject=subject(operation.spec),
        step=operation.step,
        by=operation.by,
        posted_at=operation.posted_at,
        state=state,
        sentence=sentence,
        journal=tuple(entry.sentence for entry in entries) if journal else (),
    )
