"""The load of a tier, as its driver reports it for the scaler."""

from pydantic import Field

from sluice_ops.model.resources import Frozen

LOAD_SECONDS = 10.0
"""The time over which a driver measures the load, and after which it reports it again."""
FRESH_SECONDS = 3 * LOAD_SECONDS
"""A load that is older is not used."""


class TierLoad(Frozen):
    """`tiers/<t>/incarnations/<i>/load`: the load over the last `LOAD_SECONDS`.

    No process watches the node: the controller reads it when it plans the sizes of tiers.
    """

    at: float
    """Wall clock of the driver, for people."""
    rate_in: float = Field(ge=0)
    """Records that came into the input streams each second."""
    rate_done: float = Field(ge=0)
    """Records that the tier processed each second."""
    rate_out: float = Field(ge=0)
    """Records that the tier wrote each second."""
    rate_quarantined: float = Field(default=0.0, ge=0)
    """Bad records that went to quarantine each second."""
    busy: float | None = Field(default=None, ge=0, le=1)
    """The part of the time in which a batch was processed.

    None for a realtime tier: the tasks of its query never end, so Spark does not tell.
    """
    fixed: float = Field(default=0.0, ge=0, le=1)
    """The part of the time that batches take whatever the number of their records; 0 if unknown.

    It is a part of `busy`.
    """
    workers: int = Field(ge=0)
    """Workers that get tasks."""
    lag: int = Field(ge=0)
    """Records that wait."""
    lag_seconds: float = Field(ge=0)
    """How long the oldest of them has waited."""
    throttled: bool = False
    """Whether backpressure limited `rate_done`: the records wait for a slower tier downstream."""
