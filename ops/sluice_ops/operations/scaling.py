"""Set the mode of the scaler for a tier."""

import time

from sluice_ops.channel import Channel, ConflictError, Write, trail_queue
from sluice_ops.model import paths
from sluice_ops.model.access import Role
from sluice_ops.model.ids import TierName
from sluice_ops.model.scaler import Mode, ScalerModes
from sluice_ops.model.share import Layer
from sluice_ops.model.trail import Entry, Outcome

TRIES = 20
"""Requests are rare, so this many conflicts in a row mean a fault."""


def set_mode(channel: Channel, tier: TierName, mode: Mode, by: str) -> None:
    """Set the scaler's mode for a tier, above the site file's.

    Raise ConflictError if it cannot be written.
    """
    for _ in range(TRIES):
        read = channel.read(paths.SCALER_MODES, ScalerModes)
        if read is None:
            break
        now = time.time()
        after = ScalerModes(modes={**read.value.modes, tier: mode}, by=by, at=now)
        what = f"scaler {mode} {tier}"
        entry = Entry(at=now, by=by, layer=Layer.PERSON.name.lower(), what=what, outcome=Outcome.DONE)
        try:
            channel.multi(
                [
                    Write(paths.SCALER_MODES, after, read.version),
                    trail_queue.write(Role.OPERATOR, entry),
                ]
            )
        except ConflictError:
            continue
        return
    message = (
        f"{paths.SCALER_MODES} could not be written: the controller has not made it yet, or it cannot be "
        "read; is a controller running? Next: sluice status"
    )
    raise ConflictError(message)
