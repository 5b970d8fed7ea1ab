"""Capacity pools: in which market, as which type and in which zone instances can be launched."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sluice_ops.site.ec2_config import Ec2Config, Market


@dataclass(frozen=True)
class Pool:
    """A capacity pool of EC2."""

    market: Market
    instance_type: str
    zone: str | None
    """None: EC2 chooses the zone."""
    subnet: str | None

    def __str__(self) -> str:
        """Return the pool for a message: `m5.large (spot) in eu-central-1a`."""
        where = "" if self.zone is None else f" in {self.zone}"
        return f"{self.instance_type} ({self.market}){where}"

    def request(self) -> dict[str, Any]:
        """Return the parameters of a launch that name the pool."""
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


def pools(config: Ec2Config) -> Iterator[Pool]:
    """Yield the pools in the order of preference: market, then type, then zone."""
    markets: tuple[Market, ...] = ("spot", "on-demand") if config.market == "spot" else ("on-demand",)
    zones: dict[str, str] | dict[None, None] = config.subnets or {None: None}
    for market in markets:
        for instance_type in config.instance_types:
            for zone, subnet in zones.items():
                yield Pool(market, instance_type, zone, subnet)
