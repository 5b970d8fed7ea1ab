"""How a change of a runbook that carries out several changes has ended.

The runbook's node names the change before it is posted, so a later try or run asks here.
"""

from enum import StrEnum

from sluice_ops.channel import Channel
from sluice_ops.model import paths
from sluice_ops.model.change import ChangeKind, ChangeRecord, ChangeState, Step
from sluice_ops.model.ids import ChangeId
from sluice_ops.operations import requests
from sluice_ops.planning.changes.kinds import KINDS


class StoppedError(Exception):
    """The run cannot go on; the message has the reason."""


class End(StrEnum):
    """How a change stands."""

    UNDER_WAY = "under way"
    WELL = "well"
    BADLY = "badly"
    NEVER_BEGUN = "never begun"


def end_of(channel: Channel, change: ChangeId) -> End:
    """Return how a change stands; one whose preflight was refused ended badly."""
    record = channel.read(paths.change(change), ChangeRecord)
    if record is not None:
        ends = {
            ChangeState.WAITING: End.UNDER_WAY,
            ChangeState.ACTIVE: End.UNDER_WAY,
            ChangeState.DONE: End.WELL,
        }
        return ends.get(record.value.state, End.BADLY)
    preflight = requests.operation_id(change, Step.PREFLIGHT)
    if not channel.exists(paths.operation(preflight)):
        return End.NEVER_BEGUN
    return End.UNDER_WAY if requests.read_result(channel, preflight) is None else End.BADLY


def why_failed(channel: Channel, change: ChangeId, kind: ChangeKind) -> str:
    """Return which step of a change failed, and why."""
    for step in KINDS[kind].steps:
        result = requests.read_result(channel, requests.operation_id(change, step))
        if result is not None and not result.ok:
            return f"{step} failed: {result.sentence}"
    return "it was aborted"
