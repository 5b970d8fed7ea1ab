"""Follows in the channel how many records the tiers of a stream let in."""

import threading
from collections.abc import Callable

import structlog

from sluice_ops.channel import Channel, ChannelAwayError, NotAllowedError
from sluice_ops.model import paths
from sluice_ops.model.access import Role
from sluice_ops.model.incarnation import OwnerRecord
from sluice_ops.model.tier import TierSpec
from sluice_ops.site.endpoints import Endpoints

log = structlog.get_logger()

EVERY_SECONDS = 2.0


def admitted(channel: Channel, stream: str) -> float | None:
    """Return the lowest admitted rate of the stream's readers; None if none is throttled."""
    specs = channel.read_many([paths.tier(name) for name in channel.children("/tiers")], TierSpec)
    readers = [spec.value.name for spec in specs if spec is not None and stream in spec.value.inputs]
    owners = channel.read_many([paths.owner(name) for name in readers], OwnerRecord)
    return min(
        (owner.value.admitted for owner in owners if owner is not None and owner.value.held_for is not None),
        default=None,
    )


def follow(
    where: Endpoints, stream: str, tell: Callable[[float | None], None], stop: threading.Event
) -> None:
    """Tell the admitted rate every two seconds until `stop` is set.

    While ZooKeeper is away, nothing is throttled: the stream keeps what the tiers do not take.
    """
    is_away = False
    while not stop.is_set():
        try:
            with Channel(where.zookeeper, where.credential(Role.OPERATOR)) as channel:
                while not stop.wait(EVERY_SECONDS):
                    tell(admitted(channel, stream))
                    is_away = False
        except (ChannelAwayError, NotAllowedError) as error:
            tell(None)
            if not is_away:
                log.warning("ZooKeeper cannot be read, so requests are not throttled", reason=str(error))
            is_away = True
            stop.wait(EVERY_SECONDS)
