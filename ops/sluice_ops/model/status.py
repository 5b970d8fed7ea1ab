"""The leader's status of the site, in one node for `sluice status`, the UI and the tiers' DAGs."""

from enum import StrEnum

from pydantic import Field

from sluice_ops.model.backpressure import Expiry, Pressure
from sluice_ops.model.ids import HostName, TierName
from sluice_ops.model.resources import Frozen


class TierState(StrEnum):
    """The state of a tier as an operator sees it, over all its incarnations."""

    STOPPED = "stopped"
    WAITING = "waiting"
    """The tier should run but is not started: room is short, or it backs off after a failure."""
    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPING = "stopping"
    FAILED = "failed"
    """The tier was given up after several failures in a row.

    A higher `wanted.attempt` starts it again.
    """


STARVED = "is starved of processor time on "


class Starved(Frozen):
    """A tier with units that get less processor time than promised, because of other processes."""

    hosts: tuple[HostName, ...]
    """The hosts of the starved units."""
    sentence: str
    """The hosts, a colon, and what is done or why nothing is done. Continues the tier's name."""


class TierStatus(Frozen):
    """One tier's line."""

    state: TierState
    sentence: str
    failures: int = 0
    """Failures in a row."""
    error: str | None = None
    """The last error of its driver when it failed, or how the driver ended."""
    down_since: float | None = None
    """Since when the tier should run, but no incarnation has got so far that it could report its
    lag.
    """
    drifted_since: float | None = None
    """Since when a repair would move the tier, if the site file lets the controller repair.

    Kept as long as nobody else changes anything.
    """
    drift: str | None = None
    """How the tier has drifted, and when the controller repairs it; None: it has not.

    Continues the tier's name. Only if the site file lets the controller repair.
    """
    starved: Starved | None = None
    pressure: Pressure | None = None
    """The tier's lag is too large; the entry upstream is throttled, unless the tier may lag."""

    def expiry(self, now: float) -> Expiry | None:
        """Return when Kafka deletes records that wait for the tier; None: not known.

        A tier that does not run measures nothing, so its last report is continued.
        """
        last = None if self.pressure is None else self.pressure.expiry
        return (
            last if last is None or self.down_since is None else last.after(max(0.0, now - self.down_since))
        )


class Check(StrEnum):
    """What the audit compares with a tier's input, in addition to the batches with each other."""

    RECORDS = "records"
    """Each record: it is in a stream, or the table has a row with its origin."""
    SUMS = "sums"
    """Sums in a table, or the number of rows in files, compared with the rows of the batches."""
    LAST = "last"
    """The rows of the last batch only."""
    BATCHES = "batches"
    """Nothing else: the audit does not read the output."""


class Loss(Frozen):
    """`tiers/<name>/loss`: the last missing records that the audit found, until a person settles
    them.
    """

    number: int
    sentence: str


class ControllerStatus(Frozen):
    """`controller/status`: rewritten when a value changes, never as a heartbeat."""

    leader: str
    epoch: int
    at: float
    sentence: str
    tiers: dict[TierName, TierStatus] = Field(default_factory=dict)
    braked: tuple[HostName, ...] = ()
    """Hosts that were lost together.

    Their units are not moved until the hosts are back or written off.
    """
