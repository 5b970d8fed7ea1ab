"""One instance, and the host that it becomes."""

from dataclasses import dataclass

from sluice_ops.model.ids import HostName
from sluice_ops.planning.placement.cluster import BURST_ZONE
from sluice_ops.site.ec2_config import Market

ID_DIGITS = 8
"""How many digits of an instance's id are in its host's name."""


@dataclass(frozen=True)
class Instance:
    """One instance that runs, or will run."""

    id: str
    state: str
    token: str
    """The change that launched the instance."""
    address: str
    instance_type: str
    zone: str
    market: Market
    launched_at: float
    """Epoch seconds."""

    @property
    def host(self) -> HostName:
        """The name under which its agent registers."""
        return host_of(self.id)

    def __str__(self) -> str:
        """Return the instance for a message: `i-0a1b2c3d (m5.large, spot, eu-central-1a)`."""
        return f"{self.id} ({self.instance_type}, {self.market}, {self.zone})"


def host_of(instance: str) -> HostName:
    """Return the host name of an instance, such as `ec2-0a1b2c3d`."""
    return HostName(f"{BURST_ZONE}-{instance[-ID_DIGITS:]}")
