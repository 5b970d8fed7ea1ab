"""A rolling reboot: what it has to do, and how far it is."""

from pydantic import Field

from sluice_ops.model.ids import HostName
from sluice_ops.model.run_node import RunNode

NOT_BEFORE = "not_before"
"""The detail of a refused preflight that says when the next batch may be posted. Epoch seconds."""


class RollingReboot(RunNode):
    """`reboots/<place>`: a rolling reboot that is under way, or has stopped before its end.

    A host is done when its agent reports another boot than the one noted here. No clock is needed.
    """

    place: str
    """Where its hosts are: `rack:r1`, `zone:z`, `label:l`, or names such as `h1,h2`."""
    at: float
    """When it last went on. A later run continues it for a day."""
    boots: dict[HostName, str] = Field(default_factory=dict)
    """By host, in the order of the reboots: the boot that the host had at the beginning."""
    batch: tuple[HostName, ...] = ()
    """The hosts of the last batch, which may be under way."""
    rebooted: tuple[HostName, ...] = ()
    """The hosts of the batches that ended well."""
    not_before: float = 0.0
    """Until then no batch is posted: the controller refused the last one as too early."""
    complete: bool = False
    """Whether every host is done. The next run begins anew."""
    earlier_events: tuple[str, ...] = ()
    """The keys of the alerts of earlier events. They do not stop the rolling reboot."""
