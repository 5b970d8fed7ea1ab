"""How runbooks speak to the controller: post a step, follow its journal, read its result.

Used by the CLI, which waits here, and by Airflow, whose tasks post and whose triggers watch. Everything can be called twice: an
operation's id follows from the change and the step alone.
"""

import re
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from sluice_ops.channel import Channel, ChannelAwayError, ConflictError, NotAllowedError, Write, trail_queue
from sluice_ops.model import paths
from sluice_ops.model.access import Role
from sluice_ops.model.change import ChangeSpec, JournalEntry, Operation, Result, Step
from sluice_ops.model.ids import ChangeId, OperationId, TierName
from sluice_ops.model.incarnation import TierWanted
from sluice_ops.model.share import Layer
from sluice_ops.model.trail import Entry, Outcome
from sluice_ops.planning.changes.kinds import KINDS

POLL_SECONDS = 0.15
"""How often a waiting caller looks; a result is read once, so watches would cost more than they save."""
GRACE_SECONDS = 30.0
"""A controller fails a step at its deadline; whoever waits gives it this long to say so (an election may lie in between)."""
ABORT_SECONDS = 120.0
"""The deadline of an abort, whatever the failed step's was."""

WANT_TRIES = 20
"""Others write what is wanted rarely, so this many conflicts in a row mean that something is broken."""


class NoAnswerError(Exception):
    """No result came in time: the message says what was heard last and what to look at."""


class StepResult(NamedTuple):
    """One step of a change and how it ended."""

    step: Step
    result: Result


def change_id(*parts: str) -> ChangeId:
    """Make a change's id of names that may hold anything, such as an Airflow run's."""
    return ChangeId(re.sub(r"[^A-Za-z0-9_.:+-]", "_", "-".join(parts)))


def operation_id(change: str, step: Step) -> OperationId:
    """Name the one operation of this step of this change."""
    return OperationId(f"{change_id(change)}.{step}")


def post(channel: Channel, operation: Operation) -> bool:
    """Post a step; False when it was posted before, which is as good."""
    return channel.create(paths.operation(operation.id), operation)


def read_result(channel: Channel, identity: str) -> Result | None:
    """Return how a step ended; None while it goes on."""
    found = channel.read(paths.result(identity), Result)
    return None if found is None else found.value


def read_journal(channel: Channel, identity: str, after: int = 0) -> list[JournalEntry]:
    """Return the lines of a step's journal, without the first `after`."""
    at = paths.journal(identity)
    entries = (channel.read(f"{at}/{name}", JournalEntry) for name in channel.children(at)[after:])
    return [entry.value for entry in entries if entry is not None]


def wait(
    channel: Channel, identity: str, seconds: float, on_journal: Callable[[JournalEntry], None] | None = None
) -> Result:
    """Block until the step has ended, passing on its journal line by line; a channel that is away is waited for."""
    until = time.monotonic() + seconds
    heard = 0
    last = "its journal is empty"
    while True:
        try:
            result = read_result(channel, identity)
            for entry in read_journal(channel, identity, heard):
                heard += 1
                last = f"it said last: {entry.sentence}"
                if on_journal is not None:
                    on_journal(entry)
            if result is not None:
                return result
            away = ""
        except ChannelAwayError as error:
            away = f" ({error})"
        if time.monotonic() >= until:
            message = f"{identity} has no result after {seconds:.0f} s{away}; {last}. Is a controller running? `sluice status` tells"
            raise NoAnswerError(message)
        time.sleep(POLL_SECONDS)


def run(  # noqa: PLR0913 - what a form has, field by field
    channel: Channel,
    change: str,
    spec: ChangeSpec,
    by: str,
    deadline: float = 600.0,
    *,
    dry_run: bool = False,
    on_sentence: Callable[[Step, str], None] | None = None,
) -> list[StepResult]:
    """Carry out a whole change, one step after the other; a step that fails is followed by an abort. The last result tells how it went."""
    done: list[StepResult] = []
    steps = KINDS[spec.kind].steps[:1] if dry_run else KINDS[spec.kind].steps
    until = time.monotonic() + deadline
    for step in steps:
        left = max(1.0, until - time.monotonic())
        result = _carry_out(channel, _operation(change, step, spec, by, left, dry_run=dry_run), on_sentence)
        done.append(StepResult(step, result))
        if not result.ok:
            if step is not Step.PREFLIGHT:
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
    """Undo what a change has not finished, back to a running pipeline; fine for one that has ended or never began."""
    return _carry_out(channel, _operation(change, Step.ABORT, spec, by, ABORT_SECONDS), on_sentence)


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
        if operation.step is Step.PREFLIGHT and not operation.dry_run:
            _call_off(channel, operation)
        return Result(ok=False, sentence=str(error), finished_at=time.time())


def _call_off(channel: Channel, preflight: Operation) -> None:
    """Post the abort of a change that nobody has begun: a controller that comes later is not to begin what nobody goes on with."""
    with suppress(ChannelAwayError):
        post(channel, _operation(preflight.change, Step.ABORT, preflight.spec, preflight.by, ABORT_SECONDS))


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


def want(  # noqa: PLR0913 - each is one field of what is wanted
    channel: Channel,
    tier: str,
    *,
    by: str,
    running: bool | None = None,
    paused: bool | None = None,
    again: bool = False,
) -> TierWanted:
    """Say what is wanted of a tier; what is None stays as it is. `again` has a tier that was given up started once more."""
    path = paths.wanted(TierName(tier))
    for _ in range(WANT_TRIES):
        found = channel.read(path, TierWanted)
        before = TierWanted() if found is None else found.value
        said = {"running": running, "paused": paused, "attempt": before.attempt + 1 if again else None}
        after = before.model_copy(
            update={
                **{key: value for key, value in said.items() if value is not None},
                "by": by,
                "at": time.time(),
            }
        )
        if found is not None and after.model_copy(update={"by": before.by, "at": before.at}) == before:
            return before
        what, layer = _asked(tier, running=running, paused=paused), Layer.PERSON.name.lower()
        entry = Entry(at=time.time(), by=by, layer=layer, what=what, outcome=Outcome.DONE)
        try:
            channel.multi(
                [
                    Write(path, after, None if found is None else found.version),
                    trail_queue.write(Role.OPERATOR, entry),
                ]
            )
        except ConflictError:
            continue
        return after
    message = f"{path} changed {WANT_TRIES} times under this write, or holds something that does not parse; look at it with zkCli"
    raise ConflictError(message)


def _asked(tier: str, *, running: bool | None, paused: bool | None) -> str:
    verbs = [
        *(["start" if running else "stop"] if running is not None else []),
        *(["pause" if paused else "resume"] if paused is not None else []),
    ]
    return f"{' and '.join(verbs) or 'want'} {tier}"
