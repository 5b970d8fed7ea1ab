"""The queue of batch jobs: its tenants in the site file, requests for slots, and grants.

`planning.batch_queue` divides the slots, and decision 72 explains it.
"""

from enum import StrEnum
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from sluice_ops.model.ids import HostName, UnitId, named_by_people
from sluice_ops.model.resources import Frozen

RENEW_SECONDS = 15.0
"""How often the task of a job renews its request."""
LEASE_SECONDS = 120.0
"""A request that was not renewed for this long is deleted, and its slots are free again.

A task that moves between the triggerer and a worker is silent in between.
"""
RETURN_SECONDS = 10.0
"""The part of `reclaim_seconds` that is kept for ending a slot, and for the reports about it."""
KEPT_RECLAIMS = 200
"""The slots that went back and whose times are kept."""
DEFAULT_TENANT = "default"
"""The only batch tenant of a site file without `batch_tenants`."""


def task_seconds(reclaim_seconds: float) -> float:
    """Return how long tasks may continue in a slot that goes back within `reclaim_seconds`."""
    return max(0.0, reclaim_seconds - RETURN_SECONDS)


def _tenant_name(name: str) -> str:
    return named_by_people(name, "a batch tenant's name", "reports")


BatchTenantName = Annotated[str, AfterValidator(_tenant_name)]
"""The name of a batch tenant."""


class BatchTenant(Frozen):
    """What the batch jobs of one tenant may have together."""

    minimum: int = Field(default=0, ge=0)
    """The slots that its waiting jobs get before the jobs of other tenants. Slots never idle for
    it.
    """
    maximum: int | None = Field(default=None, ge=1)
    """The most slots of its jobs together. Default: all slots of `batch`."""
    priority: int = 0
    """Jobs of a higher priority get slots first, and give slots back last."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.maximum is not None and self.minimum > self.maximum:
            message = (
                f"its minimum of {self.minimum} is above its maximum of {self.maximum}; "
                "lower minimum, or raise maximum"
            )
            raise ValueError(message)
        return self


class BatchRequest(Frozen):
    """`batch/jobs/<id>`: a job that wants slots, or has them.

    The job's task deletes the node at its end.
    """

    tenant: str
    slots: int | None = None
    """The slots that the job wants; None: as many as its tenant may have."""
    least: int = 1
    """The fewest slots with which the job starts."""
    by: str
    """The run and the task of the job."""
    at: float
    """When the job was queued. Earlier jobs come first."""
    renewed_at: float


class Grant(Frozen):
    """The slots of a job."""

    slots: int
    """The slots that the job has now; 0: it has to end, because batch gave all of them back."""
    started_with: int
    """The slots of the job's Spark application."""
    at: float
    back_by: float | None = None
    """Until when tasks in returned slots may run. Wall clock. None: the job has lost no slot."""
    reason: str = ""
    """Why the job lost slots."""


class JobState(StrEnum):
    """The state of a batch job."""

    RUNNING = "running"
    QUEUED = "queued"
    ENDING = "ending"
    """The job has to end: batch gave all its slots back."""


class BatchGrants(Frozen):
    """`batch/grants`: how the slots of `batch` are divided."""

    grants: dict[str, Grant] = Field(default_factory=dict)
    """By job."""
    waiting: dict[str, str] = Field(default_factory=dict)
    """Queued job → the reason why it waits."""

    def slots(self, job: str) -> int:
        """Return how many slots a job has."""
        return self.grants[job].slots if job in self.grants else 0

    def state(self, job: str) -> JobState:
        """Return the state of a job."""
        if job not in self.grants:
            return JobState.QUEUED
        return JobState.RUNNING if self.grants[job].slots else JobState.ENDING


class Reclaim(Frozen):
    """One slot that `batch` gives back, or gave back."""

    slot: UnitId
    host: HostName
    at: float
    """When a tier or a change needed the room. Wall clock."""
    by: str
    """For what."""
    limit: float
    """The time within which it should be back: `reclaim_seconds` at the demand."""
    seconds: float | None = None
    """How long the room was awaited; None: it still is."""

    @property
    def late(self) -> bool:
        """Whether the slot came back after its limit."""
        return self.seconds is not None and self.seconds > self.limit


class Reclaims(Frozen):
    """`batch/reclaims`: the slots that go back, and the last ones that did, the newest last."""

    going: tuple[Reclaim, ...] = ()
    ended: tuple[Reclaim, ...] = ()

    def percentile(self, per_cent: int) -> float | None:
        """Return the seconds within which so many per cent of the slots came back; None: none
        did.
        """
        seconds = sorted(each.seconds for each in self.ended if each.seconds is not None)
        return seconds[-(-len(seconds) * per_cent // 100) - 1] if seconds else None
