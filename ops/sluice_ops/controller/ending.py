"""The end of a change: its record is closed and the maintenance lock given back."""

from sluice_ops.controller.pass_state import Draft
from sluice_ops.model.change import ChangeState
from sluice_ops.model.ids import ChangeId


def end(draft: Draft, identity: ChangeId, state: ChangeState) -> None:
    """Close a change."""
    draft.change_of(identity, state=state, ended_at=draft.now)
    if draft.lock is not None and draft.lock.change == identity:
        draft.lock = None
