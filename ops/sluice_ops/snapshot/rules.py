"""What planning goes by: the site file's word, and the layers above it. Used by the controller and by commands that look."""

from sluice_ops.model.share import Layers
from sluice_ops.planning.placement.cluster import Rules
from sluice_ops.site.site_file import Site


def rules_of(site: Site, layers: Layers) -> Rules:
    """Put both together."""
    return Rules(
        shares=site.shares,
        locality=site.locality,
        spread=site.spread,
        separate=site.separate,
        dedicated=site.dedicated,
        budget=site.budget,
        layers=layers,
        shifts={name: shift.shares for name, shift in site.shifts.items()},
        partitions=site.partitions,
        batch_quantum=site.batch_quantum,
        reclaim_seconds=site.reclaim_seconds,
        repair_seconds=site.repair_seconds,
        instance=site.ec2.capacity,
    )
