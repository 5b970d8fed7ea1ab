"""The end of a change: its record is closed and the maintenance lock given back."""

from ops.controller.draft import Draft
from ops.model.ids import ChangeId
from ops.model.operation import ChangeState


def end(draft: Draft, identity: ChangeId, state: ChangeState) -> None:
    """Close a change."""
    draft.change_of(identity, state=state, ended_at=draft.now)
    if draft.lock is not None and draft.lock.change == identity:
        draft.lock = None
