"""A person's change of one node, with its entry of the trail in the same request."""

import time
from collections.abc import Callable
from typing import TypeVar

from pydantic import BaseModel

from sluice_ops.channel import Channel, ConflictError, Write, trail_queue
from sluice_ops.model.access import Role
from sluice_ops.model.share import Layer
from sluice_ops.model.trail import Entry, Outcome

M = TypeVar("M", bound=BaseModel)

TRIES = 20
"""Such changes are rare, so this many conflicts in a row mean a fault."""


def change_node(  # noqa: PLR0913 - the node, its change and the entry
    channel: Channel, path: str, model: type[M], change: Callable[[M | None], M], *, by: str, what: str
) -> M:
    """Replace a node's value by what `change` makes of it, and return the new value.

    `change` gets None if the node is absent or cannot be read. If `change` returns the value that
    it got, nothing is written. ConflictError if the node cannot be written.
    """
    for _ in range(TRIES):
        read = channel.read(path, model)
        before = None if read is None else read.value
        after = change(before)
        if after == before:
            return after
        entry = Entry(at=time.time(), by=by, layer=Layer.PERSON.name.lower(), what=what, outcome=Outcome.DONE)
        write = Write(path, after, None if read is None else read.version)
        try:
            channel.multi([write, trail_queue.write(Role.OPERATOR, entry)])
        except ConflictError:
            continue
        return after
    message = (
        f"{path} could not be written: it changed {TRIES} times in a row, or its content cannot be "
        "read; look at the node with zkCli"
    )
    raise ConflictError(message)
