"""The form in which records get their lineage: one header, or five of former versions."""

import structlog

from sluice_ops.channel.client import Channel, ChannelAwayError, ConflictError
from sluice_ops.model import paths
from sluice_ops.model.incarnation import IncarnationReport, OwnerRecord
from sluice_ops.site.site_file import Site

log = structlog.get_logger()


def is_written(channel: Channel, site: Site) -> bool:
    """Tell whether the site wants one header and every driver reads it; if not, log why."""
    if not site.packed_lineage:
        return False
    try:
        older = older_drivers(channel)
    except (ChannelAwayError, ConflictError) as error:
        log.warning("records get five headers of lineage: the drivers are unknown", reason=str(error))
        return False
    if older:
        log.warning(
            "records get five headers of lineage, because drivers of an older version run; "
            "hand their tiers over, then this tier",
            incarnations=older,
        )
    return not older


def older_drivers(channel: Channel) -> list[str]:
    """Return the incarnations, of all tiers, whose drivers cannot read a lineage in one header.

    ChannelAwayError if ZooKeeper does not answer.
    """
    return [
        f"{tier}/{number}"
        for tier in channel.children("/tiers")
        if (record := channel.read(paths.owner(tier), OwnerRecord)) is not None
        for number in (record.value.owner, record.value.next, record.value.standby)
        if number is not None
        and (report := channel.read(paths.report(tier, number), IncarnationReport)) is not None
        and not report.value.reads_packed
    ]
