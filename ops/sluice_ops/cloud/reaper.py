"""Terminate orphaned instances, and retire hosts whose instances have ended.

A burst terminates its own instances if it fails. The reaper finds those that are left because the
process of the burst was killed, or EC2 did not answer at its end.
"""

import re
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sluice_ops.channel import Channel, ConflictError
from sluice_ops.cloud.errors import NOT_PERMITTED, CloudError, MayNotAskError, NoCredentialsError
from sluice_ops.cloud.instance import Instance
from sluice_ops.cloud.receipts import keep_receipts
from sluice_ops.model import paths
from sluice_ops.model.assignment import Assignment, HostFacts
from sluice_ops.model.change import ChangeRecord, ChangeState
from sluice_ops.model.ids import HostName
from sluice_ops.operations.retiring import nodes_of, take_off
from sluice_ops.planning.placement.cluster import BURST_ZONE

if TYPE_CHECKING:
    from sluice_ops.cloud.ec2 import Cloud

BOOT_SECONDS = 1800.0
"""How long an instance may run without an agent, and a burst before its handover begins."""
RETIRE_SECONDS = 60.0
"""How long a leave waits for the agents of terminated instances to end."""
POLL_SECONDS = 1.0
NO_RECEIPTS: Mapping[HostName, str] = {}
_HOST = re.compile(rf"{BURST_ZONE}-[0-9a-f]{{8}}")
"""The host name of an instance. Other hosts in the zone are not retired."""


@dataclass(frozen=True)
class Reaped:
    """The instances that were terminated, each with the reason, and the retired hosts."""

    terminated: dict[str, str]
    retired: list[HostName]


def reap(cloud: "Cloud", channel: Channel, by: str, now: float, *, dry_run: bool = False) -> Reaped:
    """Terminate orphaned instances, and retire the hosts of ended instances. Never touch a tier.

    With `dry_run`, only tell. Raise MayNotAskError where EC2 may not be asked.
    """
    try:
        instances = cloud.instances()
    except CloudError as error:
        if isinstance(error, NoCredentialsError) or error.code == NOT_PERMITTED:
            raise MayNotAskError(str(error), error.code) from error
        raise
    unowned = {each: why for each in instances if (why := why_unowned(channel, each, now)) is not None}
    if not dry_run:
        ids = [each.id for each in unowned]
        cloud.terminate(ids)
        keep_receipts(channel, instances, now, ids)
    others = [each for each in instances if each not in unowned]
    retired = ended_hosts(channel, others) if dry_run else retire(channel, others, by)
    return Reaped({str(each): why for each, why in unowned.items()}, retired)


def why_unowned(channel: Channel, instance: Instance, now: float) -> str | None:
    """Return why an instance is orphaned; None if it may be needed."""
    if is_used(channel, instance.host):
        return None
    minutes = (now - instance.launched_at) / 60
    is_old = now - instance.launched_at > BOOT_SECONDS
    if is_old and not channel.exists(paths.live(instance.host)):
        return f"it has run for {minutes:.0f} minutes, and no agent serves {instance.host}"
    node = paths.change(instance.token) if instance.token else None
    change = None if node is None else channel.read(node, ChangeRecord)
    if change is not None:
        is_undone = change.value.state is ChangeState.ABORTED
        return (
            f"change {instance.token} was aborted, and no tier is on {instance.host}" if is_undone else None
        )
    if is_old and (node is None or not channel.exists(node)):
        return (
            f"it has run for {minutes:.0f} minutes without a tier, and change "
            f"{instance.token or '(none)'}, which launched it, is not known"
        )
    return None


def retire(
    channel: Channel, instances: Iterable[Instance], by: str, receipts: Mapping[HostName, str] = NO_RECEIPTS
) -> list[HostName]:
    """Take the hosts of ended instances off the channel; return them.

    `instances` are those that run. A host stays while an agent serves it, or units are assigned to
    it. Its receipt goes into the trail.
    """
    retired = []
    for host in ended_hosts(channel, instances):
        with suppress(ConflictError):  # the next call retires it
            nodes = {path: channel.version(path) for path in nodes_of(host)}
            take_off(channel, nodes, f"retire {host}", by, receipts.get(host, "its EC2 instance has ended"))
            retired.append(host)
    return retired


def retire_soon(
    channel: Channel,
    cloud: "Cloud",
    by: str,
    receipts: Mapping[HostName, str],
    pause: Callable[[float], None] = time.sleep,
) -> list[HostName]:
    """Retire hosts as `retire` does, and wait for those whose instances are just ending."""
    retired: list[HostName] = []
    for _ in range(int(RETIRE_SECONDS / POLL_SECONDS)):
        instances = cloud.instances()
        retired += retire(channel, instances, by, receipts)
        if not _registered(channel) - {each.host for each in instances}:
            break
        pause(POLL_SECONDS)
    return retired


def ended_hosts(channel: Channel, instances: Iterable[Instance]) -> list[HostName]:
    """Return the hosts that no instance, no agent and no unit belongs to any more."""
    running = {instance.host for instance in instances}
    return [
        host
        for host in sorted(_registered(channel) - running)
        if not channel.exists(paths.live(host)) and not is_used(channel, host)
    ]


def _registered(channel: Channel) -> set[HostName]:
    """Return the registered hosts that are, or were, instances."""
    names = [HostName(name) for name in channel.children("/hosts") if _HOST.fullmatch(name)]
    facts = channel.read_many([paths.host(name) for name in names], HostFacts)
    return {
        name
        for name, read in zip(names, facts, strict=True)
        if read is not None and read.value.zone == BURST_ZONE
    }


def is_launching(channel: Channel, instance: Instance, now: float) -> bool:
    """Return whether the burst that launched an instance may still be under way."""
    if not instance.token:
        return False
    change = channel.read(paths.change(instance.token), ChangeRecord)
    if change is not None:
        return change.value.state in {ChangeState.ACTIVE, ChangeState.WAITING}
    return now - instance.launched_at <= BOOT_SECONDS and not channel.exists(paths.change(instance.token))


def is_used(channel: Channel, host: HostName) -> bool:
    """Return whether units are assigned to a host: of a tier, of its next incarnation, or of
    batch.
    """
    assigned = channel.read(paths.assignment(host), Assignment)
    return assigned is not None and bool(assigned.value.units)
