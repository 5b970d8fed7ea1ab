"""What the leading controller last made of everything: one node for `sluice status`, the UI and the supervising DAGs to read."""

from enum import StrEnum

from pydantic import Field

from sluice_ops.model.backpressure import Pressure
from sluice_ops.model.ids import HostName, TierName
from sluice_ops.model.resources import Frozen


class TierState(StrEnum):
    """A tier as an operator sees it, over all its incarnations."""

    STOPPED = "stopped"
    WAITING = "waiting"
    """Wanted, but not started: no room for it, or backing off after a failure."""
    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPING = "stopping"
    FAILED = "failed"
    """Given up after several failures in a row; raising `wanted.attempt` has it started again."""


STARVED = "is starved of processor time on "


class Starved(Frozen):
    """A tier some of whose units get less processor time than their quantum promises, because of what is beside them."""

    hosts: tuple[HostName, ...]
    """Where they are."""
    sentence: str
    """Where that is, and after a colon what is done about it, or why nothing is; it goes on from the tier's name."""


class TierStatus(Frozen):
    """One tier's line."""

    state: TierState
    sentence: str
    failures: int = 0
    """Failures in a row."""
    error: str | None = None
    """What its driver said last when it failed, or how it ended."""
    down_since: float | None = None
    """Since when it has not run, though it should, so far that it could say how far behind it is; kept over its incarnations."""
    drifted_since: float | None = None
    """Since when a repair would move it, where the site file lets the controller make one; kept while nobody else changes anything."""
    starved: Starved | None = None
    pressure: Pressure | None = None
    """It is behind too far; what is upstream of it is held back."""


class Check(StrEnum):
    """What the audit holds against what a tier was given, beside its batches against each other."""

    RECORDS = "records"
    """Each record: it is in a stream, or a row of the table is of its name."""
    SUMS = "sums"
    """What has been added up in a table against the rows of the batches."""
    LAST = "last"
    """The rows of the last batch only."""
    BATCHES = "batches"
    """Nothing else: of what is written nobody looks at anything."""


class Loss(Frozen):
    """`tiers/<name>/loss`: what the audit found missing of a tier last, there until a person settles it."""

    number: int
    sentence: str


class ControllerStatus(Frozen):
    """`controller/status`: rewritten when something in it changes, never as a heartbeat."""

    leader: str
    epoch: int
    at: float
    sentence: str
    tiers: dict[TierName, TierStatus] = Field(default_factory=dict)
    braked: tuple[HostName, ...] = ()
    """Hosts that were lost together: nothing of theirs is moved before they are back, or a person writes them off."""
