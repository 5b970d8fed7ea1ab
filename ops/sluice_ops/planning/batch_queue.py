"""Divide the slots of `batch` among batch jobs. Pure.

Minimums come first, then priority, then the time of the request. A job that runs keeps its slots,
unless `batch` has too few.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sluice_ops.model.batch import BatchTenant
from sluice_ops.model.wording import counted, listed


@dataclass(frozen=True)
class Job:
    """A batch job."""

    id: str
    tenant: str
    wanted: int | None
    """None: as many slots as the tenant may have."""
    least: int
    at: float
    """When the job was queued."""
    granted: int = 0
    """0: the job is queued."""
    started_with: int = 0
    """The slots of a running job's Spark application."""
    patient: bool = False
    """Whether the job waits for slots that start, rather than begin with fewer."""


@dataclass(frozen=True)
class Division:
    """The result."""

    slots: Mapping[str, int]
    """Job → its slots. 0 for a job that ran: it has to end."""
    waiting: Mapping[str, str] = field(default_factory=dict)
    """Queued job → the reason why it waits."""


def divide(jobs: Sequence[Job], tenants: Mapping[str, BatchTenant], assigned: int, running: int) -> Division:
    """Divide the slots.

    Running jobs keep up to `assigned` slots: a slot that restarts is not lost. New grants take only
    slots that run.
    """
    held = {job.id: job.granted for job in jobs if job.granted}
    _take_back(held, jobs, tenants, assigned)
    free = max(0, min(assigned, running) - sum(held.values()))
    # Spark gives a slot that comes back to the applications that lack one
    for job in sorted((job for job in jobs if held.get(job.id)), key=lambda job: _order(job, tenants)):
        more = max(0, min(free, job.started_with - held[job.id]))
        held[job.id] += more
        free -= more
    queue = _Queue(jobs, tenants, held, assigned, free)
    queue.serve([job for job in jobs if not job.granted])
    return Division({**held, **queue.granted}, queue.waiting)


def _order(job: Job, tenants: Mapping[str, BatchTenant]) -> tuple[int, float, str]:
    """Return a key that sorts the jobs that come first to the front."""
    return -_tenant(job, tenants).priority, job.at, job.id


def _tenant(job: Job, tenants: Mapping[str, BatchTenant]) -> BatchTenant:
    """Return the job's tenant; one without limits if the site file has removed the tenant."""
    return tenants.get(job.tenant, BatchTenant())


def _totals(held: Mapping[str, int], jobs: Sequence[Job]) -> Counter[str]:
    """Return the slots of each tenant."""
    total: Counter[str] = Counter()
    for job in jobs:
        total[job.tenant] += held.get(job.id, 0)
    return total


def _take_back(
    held: dict[str, int], jobs: Sequence[Job], tenants: Mapping[str, BatchTenant], assigned: int
) -> None:
    """Take slots back until at most `assigned` are held.

    Slots above minimums and of low priorities go first; then slots of jobs with several, and of
    later jobs.
    """
    total = _totals(held, jobs)
    while sum(held.values()) > assigned:
        job = min(
            (job for job in jobs if held.get(job.id)),
            key=lambda job: (
                total[job.tenant] <= _tenant(job, tenants).minimum,
                _tenant(job, tenants).priority,
                held[job.id] == 1,
                -job.at,
                job.id,
            ),
        )
        held[job.id] -= 1
        total[job.tenant] -= 1


class _Queue:
    """Gives free slots to queued jobs."""

    def __init__(
        self,
        jobs: Sequence[Job],
        tenants: Mapping[str, BatchTenant],
        held: Mapping[str, int],
        assigned: int,
        free: int,
    ) -> None:
        self.granted: dict[str, int] = {}
        self.waiting: dict[str, str] = {}
        self._tenants = tenants
        self._assigned = assigned
        self._free = free
        self._not_held = assigned - sum(held.values())
        """The free slots, and those that start."""
        self._total = _totals(held, jobs)

    def serve(self, queued: Sequence[Job]) -> None:
        """Grant as many jobs as possible. A job that waits for slots is not overtaken."""
        left, first = list(queued), None
        while left:
            job = min(left, key=self._rank)
            left.remove(job)
            if job.id in self.granted:
                if first is None:
                    self._give(job, min(self._most(job) - self.granted[job.id], self._free))
            elif (refusal := self._refusal(job)) is not None:
                self.waiting[job.id] = refusal
            elif first is not None:
                self.waiting[job.id] = f"waits behind {first.id}"
            elif (missing := self._missing(job)) is not None:
                first, self.waiting[job.id] = job, missing
            elif (lacking := self._lacking(job)) > 0:
                self._give(job, min(self._most(job), max(job.least, lacking), self._free))
                left.append(job)  # for what it wants above the minimum, by its priority
            else:
                self._give(job, min(self._most(job), self._free))

    def _rank(self, job: Job) -> tuple[bool, int, float, str]:
        return (self._lacking(job) <= 0, *_order(job, self._tenants))

    def _lacking(self, job: Job) -> int:
        """Return how many slots the job's tenant lacks of its minimum."""
        return _tenant(job, self._tenants).minimum - self._total[job.tenant]

    def _most(self, job: Job) -> int:
        """Return the most slots that the job may have, with those that it has been given."""
        maximum = _tenant(job, self._tenants).maximum
        wanted = self._assigned if job.wanted is None else job.wanted
        others = self._total[job.tenant] - self.granted.get(job.id, 0)
        return wanted if maximum is None else min(wanted, maximum - others)

    def _give(self, job: Job, slots: int) -> None:
        self.granted[job.id] = self.granted.get(job.id, 0) + slots
        self._total[job.tenant] += slots
        self._free -= slots
        self._not_held -= slots

    def _refusal(self, job: Job) -> str | None:
        """Return why the job cannot start however many slots become free; None if it can."""
        if job.tenant not in self._tenants:
            return f"the site file has no batch tenant {job.tenant}; it has {listed(sorted(self._tenants))}"
        if self._assigned == 0:
            return "no slot is lent to batch"
        if job.least > self._assigned:
            return f"needs {counted(job.least, 'slot')}, and {self._assigned} are lent to batch"
        if self._most(job) < job.least:
            maximum = self._tenants[job.tenant].maximum
            return f"{job.tenant} has {self._total[job.tenant]} of at most {maximum} slots"
        return None

    def _missing(self, job: Job) -> str | None:
        """Return for which slots the job has to wait; None if it can start."""
        if self._free < job.least:
            return f"is next: needs {counted(job.least, 'slot')}, and {self._free} are free"
        if job.patient and min(self._most(job), self._free) < min(self._most(job), self._not_held):
            return f"is next: waits for {counted(self._not_held - self._free, 'slot')} to start"
        return None
