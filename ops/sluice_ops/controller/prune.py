"""Deletes old operations, changes and incarnations, so that the channel stays small.

The newest ones are kept. Their order is the order in which their nodes were created, because the
times in them come from clocks that may jump.
"""

from collections.abc import Sequence

from pydantic import BaseModel

from sluice_ops.channel import Channel, Guard, Write
from sluice_ops.channel.subtree import deletion_order
from sluice_ops.model import paths
from sluice_ops.model.change import ChangeRecord, ChangeState, Result
from sluice_ops.model.ids import Incarnation, OperationId
from sluice_ops.snapshot.view import TierView, View

KEEP_CHANGES = 50
KEEP_OPERATIONS = 50
KEEP_INCARNATIONS = 20
MOST_NODES = 2000
"""How many nodes one request deletes at most:

ZooKeeper limits requests. The next call deletes more.
"""


def prune(channel: Channel, view: View, epoch: Guard) -> None:
    """Delete what exceeds the numbers to keep, in one request. Open or active items stay.

    ConflictError, without a deletion, if another controller leads now or a node has changed.
    """
    deletes: list[Write] = []
    for path in (*_changes(channel, view), *_incarnations(view), *_operations(channel, view)):
        below = [Write(node, None, None) for node in deletion_order(channel, path)]
        if len(deletes) + len(below) > MOST_NODES:
            break
        deletes += below
    if deletes:
        channel.multi([epoch, *deletes])


def _changes(channel: Channel, view: View) -> list[str]:
    ended = [
        paths.change(change.id)
        for change in view.changes.values()
        if change.state in {ChangeState.DONE, ChangeState.ABORTED}
    ]
    return [] if len(ended) <= KEEP_CHANGES else _newest_first(channel, ended, ChangeRecord)[KEEP_CHANGES:]


def _incarnations(view: View) -> list[str]:
    """Name retired incarnations to delete.

    Kept are the newest, which determines the next number, and the one with the newest routing
    epoch.
    """
    return [
        paths.incarnation(name, number)
        for name, tier in view.tiers.items()
        for number in sorted(tier.incarnations, reverse=True)[KEEP_INCARNATIONS:]
        if tier.incarnations[number].retired
        and number not in {tier.owner.owner, tier.owner.next, _newest_routing(tier)}
    ]


def _newest_routing(tier: TierView) -> Incarnation | None:
    """Return the incarnation that last reported a routing epoch."""
    epochs = [
        (report.ways.turn, number) for number, report in tier.reports.items() if report.ways is not None
    ]
    return max(epochs)[1] if epochs else None


def _operations(channel: Channel, view: View) -> list[str]:
    names = [OperationId(name) for name in channel.children("/operations")]
    if len(names) <= KEEP_OPERATIONS:
        return []
    open_ = {ChangeState.ACTIVE, ChangeState.WAITING}
    active = {change.id for change in view.changes.values() if change.state in open_}
    # The author of an active change may read its results much later.
    names = [name for name in names if name.rpartition(".")[0] not in active]
    ended = _newest_first(channel, [paths.result(name) for name in names], Result)
    return [result.rpartition("/")[0] for result in ended[KEEP_OPERATIONS:]]


def _newest_first(channel: Channel, nodes: Sequence[str], model: type[BaseModel]) -> list[str]:
    """Return the nodes that exist, the newest first."""
    reads = zip(nodes, channel.read_many(nodes, model), strict=True)
    return [
        node
        for _, node in sorted(((read.made, node) for node, read in reads if read is not None), reverse=True)
    ]
