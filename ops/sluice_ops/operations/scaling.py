"""Set the mode of the scaler for a tier, and read the changes that the scaler has begun."""

import time
from collections.abc import Collection
from datetime import UTC, datetime
from typing import NamedTuple

from sluice_ops.channel import Channel, ConflictError
from sluice_ops.model import paths
from sluice_ops.model.change import SCALER, ChangeRecord, Operation, Step
from sluice_ops.model.ids import ChangeId, TierName
from sluice_ops.model.scaler import RUN_PREFIX, Mode, ScalerModes
from sluice_ops.operations.recorded_changes import change_node
from sluice_ops.operations.requests import operation_id


class ScalerChange(NamedTuple):
    """A change that the scaler has begun."""

    id: ChangeId
    reason: str
    """The sentence of the decision."""
    started_at: float

    @property
    def run(self) -> str:
        """The id of the run in Airflow that shows it.

        A change's id may come again once its record is pruned, so the time is part of it.
        """
        return f"{RUN_PREFIX}{self.id}-{datetime.fromtimestamp(self.started_at, UTC):%Y%m%dT%H%M%S}"


def scaler_changes(channel: Channel, among: Collection[str]) -> list[ScalerChange]:
    """Return the scaler's changes of these names, the oldest first.

    A change is left out once its first step, which has the reason, is pruned.
    """
    names = sorted(name for name in among if paths.change(name) != paths.LOCK)
    records = [
        read.value
        for read in channel.read_many([paths.change(name) for name in names], ChangeRecord)
        if read is not None and read.value.by == SCALER
    ]
    first_steps = channel.read_many(
        [paths.operation(operation_id(record.id, Step.PREFLIGHT)) for record in records], Operation
    )
    changes = [
        ScalerChange(record.id, first.value.reason, record.started_at)
        for record, first in zip(records, first_steps, strict=True)
        if first is not None
    ]
    return sorted(changes, key=lambda change: change.started_at)


def set_mode(channel: Channel, tier: TierName, mode: Mode, by: str) -> None:
    """Set the scaler's mode for a tier, above the site file's.

    Raise ConflictError if it cannot be written.
    """

    def with_mode(before: ScalerModes | None) -> ScalerModes:
        if before is None:
            message = (
                f"{paths.SCALER_MODES} could not be written: the controller has not made it yet, or it "
                "cannot be read; is a controller running? Next: sluice status"
            )
            raise ConflictError(message)
        return ScalerModes(modes={**before.modes, tier: mode}, by=by, at=time.time())

    change_node(channel, paths.SCALER_MODES, ScalerModes, with_mode, by=by, what=f"scaler {mode} {tier}")
