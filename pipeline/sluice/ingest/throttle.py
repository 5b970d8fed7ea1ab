"""How many records the tiers of a stream let in, as the channel says."""

from sluice_ops.channel import Channel
from sluice_ops.model import paths
from sluice_ops.model.incarnation import OwnerRecord
from sluice_ops.model.tier import TierSpec


def admitted(channel: Channel, stream: str) -> float | None:
    """Return the lowest admitted rate of the stream's readers; None if none is throttled."""
    specs = channel.read_many([paths.tier(name) for name in channel.children("/tiers")], TierSpec)
    readers = [spec.value.name for spec in specs if spec is not None and stream in spec.value.inputs]
    owners = channel.read_many([paths.owner(name) for name in readers], OwnerRecord)
    return min(
        (owner.value.admitted for owner in owners if owner is not None and owner.value.held_for is not None),
        default=None,
    )
