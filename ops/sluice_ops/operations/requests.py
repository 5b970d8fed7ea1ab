"""Requests to the controller: post a step, follow its journal, read its result.

The CLI waits here; Airflow's tasks post, and its triggers watch. Every function may be called
twice, because an operation's id follows from the change and the step alone.
"""

import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from sluice_ops.channel import Channel, ChannelAwayError, NotAllowedError
from sluice_ops.model import paths
from sluice_ops.model.approval import WAITED
from sluice_ops.model.change import (
    BEFORE_BEGIN,
    DEADLINE_SECONDS,
    ChangeRecord,
    ChangeSpec,
    ChangeState,
    JournalEntry,
    Operation,
    Result,
    Step,
    change_of_step,
)
from sluice_ops.model.ids import ChangeId, OperationId, TierName
from sluice_ops.model.incarnation import TierWanted
from sluice_ops.operations.recorded_changes import change_node
from sluice_ops.planning.changes.kinds import KINDS

POLL_SECONDS = 0.15
"""Time between two looks of a waiting caller.

A result is read once, so a watch would not pay off.
"""
GRACE_SECONDS = 30.0
"""The controller fails a step at its deadline. The caller waits this much longer for the result.

A new leader may be elected in this time.
"""
ABORT_SECONDS = 120.0
"""The deadline of an abort, independent of the failed step's deadline."""


class NoAnswerError(Exception):
    """No result came in time; the message names the last line of the journal and the next step."""


class StepResult(NamedTuple):
    """One step of a change and its result."""

    step: Step
    result: Result


def change_id(*parts: str) -> ChangeId:
    """Make a change's id from parts with any characters, such as an Airflow run id."""
    return ChangeId(re.sub(r"[^A-Za-z0-9_.:+-]", "_", "-".join(parts)))


def operation_id(change: str, step: Step) -> OperationId:
    """Return the id of the operation of this step in this change."""
    return OperationId(f"{change_id(change)}.{step}")


def post(channel: Channel, operation: Operation) -> bool:
    """Post a step. Return False if it was posted before; the caller may go on as after True."""
    return channel.create(paths.operation(operation.id), operation)


def read_result(channel: Channel, identity: str) -> Result | None:
    """Return a step's result; None while the step goes on."""
    result = channel.read(paths.result(identity), Result)
    return None if result is None else result.value


def read_journal(channel: Channel, identity: str, after: int = 0) -> list[JournalEntry]:
    """Return the lines of a step's journal, without the first `after`."""
    at = paths.journal(identity)
    entries = (channel.read(f"{at}/{name}", JournalEntry) for name in channel.children(at)[after:])
    return [entry.value for entry in entries if entry is not None]


def waits_for_approval(channel: Channel, identity: str) -> bool:
    """Tell whether the change of a posted step waits for the approval of another person.

    Read this before the result: both end in the same request.
    """
    change = channel.read(paths.change(change_of_step(OperationId(identity))), ChangeRecord)
    return change is not None and change.value.state is ChangeState.WAITING


def waited_seconds(channel: Channel, change: str) -> float:
    """Return how long a change waited until it was approved, which its deadline does not count."""
    results = (read_result(channel, operation_id(change, step)) for step in BEFORE_BEGIN)
    return sum(_waited(result) for result in results)


def _waited(result: Result | None) -> float:
    return 0.0 if result is None else float(result.details.get(WAITED, 0.0))


def wait(
    channel: Channel, identity: str, seconds: float, on_journal: Callable[[JournalEntry], None] | None = None
) -> Result:
    """Block until the step has a result; pass on its journal line by line, also after an outage.

    NoAnswerError if no result comes within `seconds`. The time in which the change waits for
    approval does not count: the controller ends that.
    """
    until = time.monotonic() + seconds
    heard, waits = 0, False
    last = "its journal is empty"
    while True:
        try:
            waits = time.monotonic() >= until and waits_for_approval(channel, identity)
            result = read_result(channel, identity)
            for entry in read_journal(channel, identity, heard):
                heard += 1
                last = f"the journal's last line: {entry.sentence}"
                if on_journal is not None:
                    on_journal(entry)
            if result is not None:
                return result
            away = ""
        except ChannelAwayError as error:
            away = f" ({error})"
        if time.monotonic() >= until and not waits:
            message = (
                f"{identity} has no result after {seconds:.0f} s{away}; {last}; "
                "is a controller running? Next: sluice status"
            )
            raise NoAnswerError(message)
        time.sleep(POLL_SECONDS)


def run(  # noqa: PLR0913 - the fields of a form
    channel: Channel,
    change: str,
    spec: ChangeSpec,
    by: str,
    deadline: float = DEADLINE_SECONDS,
    *,
    dry_run: bool = False,
    steps: Sequence[Step] | None = None,
    on_sentence: Callable[[Step, str], None] | None = None,
) -> list[StepResult]:
    """Carry out `steps` (default: all) of a change one by one, with an abort after a failed step.

    The last result is the change's.
    """
    done: list[StepResult] = []
    steps = steps or KINDS[spec.kind].steps[: 1 if dry_run else None]
    until = time.monotonic() + deadline
    for step in steps:
        left = max(1.0, until - time.monotonic())
        result = _carry_out(channel, _operation(change, step, spec, by, left, dry_run=dry_run), on_sentence)
        done.append(StepResult(step, result))
        until += _waited(result)
        if not result.ok:
            if step not in BEFORE_BEGIN:
                done.append(StepResult(Step.ABORT, abort(channel, change, spec, by, on_sentence)))
            break
    return done


def abort(
    channel: Channel,
    change: str,
    spec: ChangeSpec,
    by: str,
    on_sentence: Callable[[Step, str], None] | None = None,
) -> Result:
    """Undo what a change has not finished. Safe for a change that has ended or never began."""
    return _carry_out(channel, _operation(change, Step.ABORT, spec, by, ABORT_SECONDS), on_sentence)


def end_of(operation: Operation) -> float:
    """Return until when a posted step's result is waited for, in wall-clock time."""
    return operation.posted_at + operation.deadline_seconds + GRACE_SECONDS


def next_step(channel: Channel, first: Operation, step: Step) -> Operation:
    """Return a step that follows the first one of its change, with what is left of its time.

    The time in which the first step waited for approval does not count.
    """
    waited = _waited(read_result(channel, first.id))
    end, now = first.posted_at + first.deadline_seconds + waited, time.time()
    return first.model_copy(
        update={
            "id": operation_id(first.change, step),
            "step": step,
            "posted_at": now,
            "deadline_seconds": max(1.0, end - now),
        }
    )


def abort_of(operation: Operation, by: str) -> Operation:
    """Return the abort of the change to which a posted step belongs."""
    return _operation(operation.change, Step.ABORT, operation.spec, by, ABORT_SECONDS)


def _operation(  # noqa: PLR0913
    change: str, step: Step, spec: ChangeSpec, by: str, seconds: float, *, dry_run: bool = False
) -> Operation:
    return Operation(
        id=operation_id(change, step),
        change=change_id(change),
        step=step,
        spec=spec,
        by=by,
        posted_at=time.time(),
        deadline_seconds=seconds,
        dry_run=dry_run,
    )


def _carry_out(
    channel: Channel, operation: Operation, on_sentence: Callable[[Step, str], None] | None
) -> Result:
    seconds = operation.deadline_seconds + GRACE_SECONDS
    try:
        _post_through_outage(channel, operation, seconds)
        return wait(
            channel,
            operation.id,
            seconds,
            None if on_sentence is None else lambda entry: on_sentence(operation.step, entry.sentence),
        )
    except NoAnswerError as error:
        if operation.step in BEFORE_BEGIN and not operation.dry_run:
            _abort_unanswered(channel, operation)
        return Result(ok=False, sentence=str(error), finished_at=time.time())


def _abort_unanswered(channel: Channel, first: Operation) -> None:
    """Post the abort of an unanswered first step, so that no later controller begins the change."""
    with suppress(ChannelAwayError):
        post(channel, _operation(first.change, Step.ABORT, first.spec, first.by, ABORT_SECONDS))


def _post_through_outage(channel: Channel, operation: Operation, seconds: float) -> None:
    until = time.monotonic() + seconds
    while True:
        try:
            post(channel, operation)
        except NotAllowedError:
            raise
        except ChannelAwayError as error:
            if time.monotonic() >= until:
                message = f"{operation.id} could not be posted within {seconds:.0f} s: {error}"
                raise NoAnswerError(message) from error
            time.sleep(POLL_SECONDS)
        else:
            return


def want(  # noqa: PLR0913 - the fields of the request
    channel: Channel,
    tier: str,
    *,
    by: str,
    running: bool | None = None,
    paused: bool | None = None,
    again: bool = False,
) -> TierWanted:
    """Request a tier's state; None leaves a field as it is.

    `again` starts a tier that was given up.

    ConflictError if the request cannot be written.
    """

    def requested(node: TierWanted | None) -> TierWanted:
        before = TierWanted() if node is None else node
        fields = {"running": running, "paused": paused, "attempt": before.attempt + 1 if again else None}
        after = before.model_copy(update={key: value for key, value in fields.items() if value is not None})
        return after if after == node else after.model_copy(update={"by": by, "at": time.time()})

    request = _requested(tier, running=running, paused=paused)
    return change_node(channel, paths.wanted(TierName(tier)), TierWanted, requested, by=by, what=request)


def _requested(tier: str, *, running: bool | None, paused: bool | None) -> str:
    verbs = [
        *(["start" if running else "stop"] if running is not None else []),
        *(["pause" if paused else "resume"] if paused is not None else []),
    ]
    return f"{' and '.join(verbs) or 'want'} {tier}"
