"""What has ended long ago is deleted, so that the channel stays small: the last operations, changes and incarnations are kept."""

from ops.channel import Channel
from ops.controller.view import View
from ops.model import paths
from ops.model.ids import OperationId
from ops.model.operation import ChangeState, Result

KEEP_CHANGES = 50
KEEP_OPERATIONS = 50
KEEP_INCARNATIONS = 20


def prune(channel: Channel, view: View) -> None:
    """Delete what is beyond the numbers to keep; nothing that is open or alive is touched."""
    for path in (*_changes(view), *_incarnations(view), *_operations(channel)):
        channel.delete(path)


def _changes(view: View) -> list[str]:
    ended = [change for change in view.changes.values() if change.state in {ChangeState.DONE, ChangeState.ABORTED}]
    ended.sort(key=lambda change: change.ended_at or 0.0, reverse=True)
    return [paths.change(change.id) for change in ended[KEEP_CHANGES:]]


def _incarnations(view: View) -> list[str]:
    """Name old incarnations; never the newest, whose number tells which one comes next."""
    return [
        paths.incarnation(name, number)
        for name, tier in view.tiers.items()
        for number in sorted(tier.incarnations, reverse=True)[KEEP_INCARNATIONS:]
        if tier.incarnations[number].retired and number not in {tier.owner.owner, tier.owner.next}
    ]


def _operations(channel: Channel) -> list[str]:
    names = [OperationId(name) for name in channel.children("/operations")]
    if len(names) <= KEEP_OPERATIONS:
        return []
    results = ((name, channel.read(paths.result(name), Result)) for name in names)
    ended = sorted(((found.value.finished_at, name) for name, found in results if found is not None), reverse=True)
    return [paths.operation(name) for _, name in ended[KEEP_OPERATIONS:]]
