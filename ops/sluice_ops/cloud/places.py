"""Where instances can be launched: in which market, as which type, in which zone."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sluice_ops.site.ec2_config import Ec2Config, Market


@dataclass(frozen=True)
class Place:
    """One choice of a launch."""

    market: Market
    instance_type: str
    zone: str | None
    """None: EC2 chooses the zone."""
    subnet: str | None

    def __str__(self) -> str:
        """Return the place for a message: `m5.large (spot) in eu-central-1a`."""
        where = "" if self.zone is None else f" in {self.zone}"
        return f"{self.instance_type} ({self.market}){where}"

    def request(self) -> dict[str, Any]:
        """Return the parameters of a launch that name the place."""
        named: dict[str, Any] = {"InstanceType": self.instance_type}
        if self.subnet is not None:
            named["SubnetId"] = self.subnet
        if self.market == "spot":
            named["InstanceMarketOptions"] = {
                "MarketType": "spot",
                "SpotOptions": {
                    "SpotInstanceType": "one-time",
                    "InstanceInterruptionBehavior": "terminate",
                },
            }
        return named


def places(config: Ec2Config) -> Iterator[Place]:
    """Yield the places in the order of preference: market, then type, then zone."""
    markets: tuple[Market, ...] = ("spot", "on-demand") if config.market == "spot" else ("on-demand",)
    zones: dict[str, str] | dict[None, None] = config.subnets or {None: None}
    for market in markets:
        for instance_type in config.instance_types:
            for zone, subnet in zones.items():
                yield Place(market, instance_type, zone, subnet)
