"""Removes the nodes of decommissioned hosts whose agents have ended."""

from sluice_ops.channel import Channel, Guard, Write
from sluice_ops.channel.subtree import deletion_order
from sluice_ops.model import paths
from sluice_ops.operations.retiring import nodes_of
from sluice_ops.snapshot.view import View


def removals(channel: Channel, view: View) -> list[Write | Guard]:
    """Return the deletion of one decommissioned host, for a request of its own; empty if none is
    left.

    A host that joins anew at this moment deletes the guarded node, so that it is not removed. A
    node of an agent that comes back makes the request fail.
    """
    for host in view.decommissioned.keys() & view.hosts.keys():
        path = paths.decommissioned(host)
        if view.hosts[host].live or path not in view.versions:
            continue
        logs, *others = nodes_of(host)
        nodes = [*deletion_order(channel, logs), *others]
        return [
            Guard(path, view.versions[path]),
            *(Write(node, None, None) for node in nodes if channel.exists(node)),
        ]
    return []
