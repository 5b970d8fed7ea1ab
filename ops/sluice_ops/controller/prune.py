"""What has ended long ago is deleted, so that the channel stays small: the last operations, changes and incarnations are kept.

Which the last ones are, the order tells in which they were made: the stamps in them are of clocks that may jump.
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
MOST = 2000
"""Nodes that one request deletes, so that ZooKeeper takes it; the next time deletes more."""


def prune(channel: Channel, view: View, epoch: Guard) -> None:
    """Delete what is beyond the numbers to keep, in one request; nothing that is open or alive is touched.

    ConflictError, and nothing is deleted, where another one leads by now, or a node has changed meanwhile.
    """
    deletes: list[Write] = []
    for path in (*_changes(channel, view), *_incarnations(view), *_operations(channel, view)):
        below = [Write(each, None, None) for each in deletion_order(channel, path)]
        if len(deletes) + len(below) > MOST:
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
    """Name old incarnations; never the newest, whose number tells which one comes next, nor who said last how the tier's records go."""
    return [
        paths.incarnation(name, number)
        for name, tier in view.tiers.items()
        for number in sorted(tier.incarnations, reverse=True)[KEEP_INCARNATIONS:]
        if tier.incarnations[number].retired
        and number not in {tier.owner.owner, tier.owner.next, _last_word(tier)}
    ]


def _last_word(tier: TierView) -> Incarnation | None:
    """Return the incarnation that said last by which ways the tier's records go."""
    said = [(report.ways.turn, number) for number, report in tier.reports.items() if report.ways is not None]
    return max(said)[1] if said else None


def _operations(channel: Channel, view: View) -> list[str]:
    names = [OperationId(name) for name in channel.children("/operations")]
    if len(names) <= KEEP_OPERATIONS:
        return []
    at_work = {change.id for change in view.changes.values() if change.state is ChangeState.ACTIVE}
    names = [
        name for name in names if name.rpartition(".")[0] not in at_work
    ]  # whoever waits for a result may be away for long
    ended = _newest_first(channel, [paths.result(name) for name in names], Result)
    return [result.rpartition("/")[0] for result in ended[KEEP_OPERATIONS:]]


def _newest_first(channel: Channel, nodes: Sequence[str], model: type[BaseModel]) -> list[str]:
    """Order the nodes that are there by when they were made."""
    found = zip(nodes, channel.read_many(nodes, model), strict=True)
    return [
        node
        for _, node in sorted(((each.made, node) for node, each in found if each is not None), reverse=True)
    ]
