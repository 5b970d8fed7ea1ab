"""The node of a run that carries out several changes: read it, and write the change that begins."""

from typing import TypeVar

from sluice_ops.channel import Channel, ConflictError, Read, Write
from sluice_ops.model.run_node import RunNode
from sluice_ops.operations.ends import StoppedError

N = TypeVar("N", bound=RunNode)


def read_own(channel: Channel, path: str, model: type[N], run: str) -> Read[N]:
    """Return the node that this run carries on. StoppedError if another run has taken over."""
    read = channel.read(path, model)
    if read is None or read.value.run != run:
        other = "its node is gone" if read is None else f"{read.value.run} continues it"
        raise StoppedError(other)
    return read


def replace(channel: Channel, path: str, before: N, after: N) -> N:
    """Write the next state of a node, such as the change that is posted next, and return it.

    ConflictError if another run has written.
    """
    read = channel.read(path, type(before))
    if read is None or read.value != before:
        message = f"{path} changed at this moment"
        raise ConflictError(message)
    channel.multi([Write(path, after, read.version)])
    return after
