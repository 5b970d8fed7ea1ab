"""One instance, and the host that it becomes."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sluice_ops.model.ids import HostName
from sluice_ops.planning.placement.cluster import BURST_ZONE
from sluice_ops.site.ec2_config import Market

TAG_TOKEN = "sluice-token"  # noqa: S105 - the name of a tag
"""The tag with the change that launched the instance."""
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


def instance_of(description: dict[str, Any]) -> Instance:
    """Return an instance as EC2 describes it."""
    tags = {tag["Key"]: tag["Value"] for tag in description.get("Tags", ())}
    launched: datetime = description["LaunchTime"]
    return Instance(
        id=description["InstanceId"],
        state=description["State"]["Name"],
        token=tags.get(TAG_TOKEN, ""),
        address=description.get("PrivateIpAddress", ""),
        instance_type=description["InstanceType"],
        zone=description["Placement"]["AvailabilityZone"],
        market="spot" if description.get("InstanceLifecycle") == "spot" else "on-demand",
        launched_at=launched.timestamp(),
    )
