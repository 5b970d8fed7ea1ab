"""Reads of the leader's turns beside its snapshot: nodes that no decision of a pass needs."""

from typing import TypeVar

from sluice_ops.channel import Channel, Guard, Write
from sluice_ops.model import paths
from sluice_ops.model.ids import TierName
from sluice_ops.model.load import TierLoad
from sluice_ops.model.resources import Frozen
from sluice_ops.snapshot.view import View

F = TypeVar("F", bound=Frozen)


def tier_loads(channel: Channel, view: View) -> dict[TierName, TierLoad]:
    """Return the load that the owner of each tier has reported last, however old it is."""
    owners = {name: tier.owner.owner for name, tier in view.tiers.items() if tier.owner.owner is not None}
    nodes = [paths.load(name, number) for name, number in owners.items()]
    reads = channel.read_many(nodes, TierLoad)
    return {name: read.value for name, read in zip(owners, reads, strict=True) if read is not None}


def requested(channel: Channel, path: str, nothing: F, epoch: Guard) -> F:
    """Return what people have requested in a node; `nothing` if it is absent or unreadable.

    An absent node is made here, so that operators may write it.
    """
    read = channel.read(path, type(nothing))
    if read is None and not channel.exists(path):
        channel.multi([epoch, Write(path, nothing, None)])
    return nothing if read is None else read.value
