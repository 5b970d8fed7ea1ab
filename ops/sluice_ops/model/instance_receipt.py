"""The receipt of an EC2 instance: what its cost and its time to boot follow from."""

from sluice_ops.model.resources import Frozen


class InstanceReceipt(Frozen):
    """`instances/<id>`: how long an EC2 instance has run. Times are epoch seconds."""

    instance_type: str
    launched_at: float
    joined_at: float | None = None
    """When its agent registered; None: not yet, or no receipt was written while it ran."""
    ended_at: float | None = None
    """When it was terminated, or was first seen to have ended; None: it runs."""
