"""How many instances a burst needs, and whether it can be had: asked by the CLI and by Airflow's runbook before any is launched."""

from sluice_ops.channel import Channel
from sluice_ops.model import paths
from sluice_ops.model.share import Layers
from sluice_ops.model.tier import TierSpec
from sluice_ops.planning.changes.burst import BurstError, instances, refuse_second
from sluice_ops.site.site_file import Ec2Config


def needed(channel: Channel, tier: str, k: int, running: int, config: Ec2Config) -> int:
    """Return how many instances `k` more workers of a tier need, while others are `running`; BurstError when they cannot be had."""
    found = channel.read(paths.tier(tier), TierSpec)
    if found is None:
        message = f'there is no tier "{tier}"; known tiers: {", ".join(channel.children("/tiers")) or "none is published yet"}'
        raise BurstError(message)
    layers = channel.read(paths.LAYERS, Layers)
    refuse_second(found.value, Layers() if layers is None else layers.value)
    return instances(found.value, k, config.capacity, running, config.max_instances)
