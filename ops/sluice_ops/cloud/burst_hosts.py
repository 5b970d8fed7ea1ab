"""Questions of a burst: how many instances a tier needs, and which tiers use which host.

The CLI and Airflow's runbooks ask them before they launch or terminate instances.
"""

from sluice_ops.channel import Channel
from sluice_ops.model import paths
from sluice_ops.model.ids import HostName
from sluice_ops.model.incarnation import IncarnationSpec, OwnerRecord
from sluice_ops.model.share import Layers
from sluice_ops.model.tier import TierSpec
from sluice_ops.planning.changes.burst import BurstError, instances, refuse_second
from sluice_ops.site.ec2_config import Ec2Config


def instances_needed(channel: Channel, tier: str, k: int, running: int, config: Ec2Config) -> int:
    """Return how many more instances `k` more workers of a tier need, when `running` instances run.

    Raise BurstError if the tier is unknown, has a burst already, or needs more instances than the
    site allows.
    """
    spec = channel.read(paths.tier(tier), TierSpec)
    if spec is None:
        published_tiers = ", ".join(channel.children("/tiers")) or "none is published yet"
        message = f'there is no tier "{tier}"; known tiers: {published_tiers}'
        raise BurstError(message)
    layers = channel.read(paths.LAYERS, Layers)
    refuse_second(spec.value, Layers() if layers is None else layers.value)
    return instances(spec.value, k, config.capacity, running, config.max_instances)


def tiers_by_host(channel: Channel) -> dict[HostName, list[str]]:
    """Return for each host the tiers whose owner has a driver or a worker there.

    Terminating the host would interrupt these tiers.
    """
    tiers: dict[HostName, list[str]] = {}
    for tier in channel.children("/tiers"):
        owner = channel.read(paths.owner(tier), OwnerRecord)
        if owner is None or owner.value.owner is None or owner.value.stopped:
            continue
        incarnation = channel.read(paths.incarnation(tier, owner.value.owner), IncarnationSpec)
        for host in () if incarnation is None else sorted(incarnation.value.placement.hosts):
            tiers.setdefault(host, []).append(tier)
    return tiers
