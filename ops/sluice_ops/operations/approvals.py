"""The answer of another person to a change that waits for approval."""

import time

from sluice_ops.channel import Channel, ConflictError, Write, trail_queue
from sluice_ops.channel.client import Guard
from sluice_ops.model import paths
from sluice_ops.model.access import Role
from sluice_ops.model.approval import Answer, person_of
from sluice_ops.model.change import ChangeRecord, ChangeState
from sluice_ops.model.share import Layer
from sluice_ops.model.trail import Entry, Outcome, what_of


class AnswerError(Exception):
    """The answer is not possible; the message says why, and what is."""


def answer(channel: Channel, identity: str, by: str, *, approved: bool, why: str = "") -> ChangeRecord:
    """Approve or refuse a waiting change, and return its record.

    AnswerError if it does not wait, if `by` asked for it, or if somebody answered before.
    """
    read = channel.read(paths.change(identity), ChangeRecord)
    if read is None:
        message = f"no change is named {identity!r}; `sluice approve` lists the changes that wait"
        raise AnswerError(message)
    change, asked = read.value, read.value.asked
    if change.state is not ChangeState.WAITING or asked is None:
        message = f"change {identity} does not wait for approval: it is {change.state}"
        raise AnswerError(message)
    if approved and asked.person and person_of(by) == asked.person:
        message = (
            f"{by} asked for {identity}, so another person has to approve it; "
            f"to withdraw it, run `sluice abort {identity}`"
        )
        raise AnswerError(message)
    entry = Entry(
        at=time.time(),
        by=by,
        layer=Layer.PERSON.name.lower(),
        what=what_of(change.spec),
        change=change.id,
        outcome=Outcome.APPROVED if approved else Outcome.REFUSED,
        sentence=why or (f"asked by {change.by}; {asked.why}" if approved else ""),
    )
    node = Answer(approved=approved, by=by, why=why, at=entry.at)
    try:
        channel.multi(
            [
                Guard(paths.change(identity), read.version),
                Write(paths.approval(identity), node, None),
                trail_queue.write(Role.OPERATOR, entry),
            ]
        )
    except ConflictError as conflict:
        message = f"change {identity} was answered, or has ended; `sluice changes` shows its state"
        raise AnswerError(message) from conflict
    return change


def waiting(channel: Channel) -> list[ChangeRecord]:
    """Return the changes that wait for an answer, the oldest first."""
    names = [name for name in channel.children("/changes") if paths.change(name) != paths.LOCK]
    reads = channel.read_many([paths.change(name) for name in names], ChangeRecord)
    changes = [read.value for read in reads if read is not None and read.value.state is ChangeState.WAITING]
    changes = [change for change in changes if change.asked is None or not change.asked.approved_by]
    return sorted(changes, key=lambda change: change.started_at)
