"""How many instances a burst needs, and whether it can be had: asked by the CLI and by Airflow's runbook before any is launched."""

from ops.channel import Channel
from ops.model import paths
from ops.model.share import Layers
from ops.model.tier import TierSpec
from ops.planning.burst import BurstError, instances, refuse_second
from ops.site import Ec2Config


def needed(channel: Channel, tier: str, k: int, running: int, config: Ec2Config) -> int:
    """Return how many instances `k` more workers of a tier need, while others are `running`; BurstError when they cannot be had."""
    found = channel.read(paths.tier(tier), TierSpec)
    if found is None:
        message = f'there is no tier "{tier}"; known tiers: {", ".join(channel.children("/tiers")) or "none is published yet"}'
        raise BurstError(message)
    layers = channel.read(paths.LAYERS, Layers)
    refuse_second(found.value, Layers() if layers is None else layers.value)
    return instances(found.value, k, config.capacity, running, config.max_instances)
