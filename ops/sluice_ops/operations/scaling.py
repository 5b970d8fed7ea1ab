"""Set the mode of the scaler for a tier."""

import time

from sluice_ops.channel import Channel, ConflictError
from sluice_ops.model import paths
from sluice_ops.model.ids import TierName
from sluice_ops.model.scaler import Mode, ScalerModes
from sluice_ops.operations.recorded_changes import change_node


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
