"""Describes batch tenants and batch jobs from their nodes. Pure."""

from collections.abc import Mapping, Sequence

from sluice_ops.model.batch import BatchGrants, BatchRequest, BatchTenant, JobState
from sluice_ops.queries.lines import BatchJobLine, BatchTenantLine


def jobs(requests: Mapping[str, BatchRequest], divided: BatchGrants) -> list[BatchJobLine]:
    """Describe the batch jobs: those with slots first, then the queue, each in order of time."""
    lines = []
    for name, request in requests.items():
        grant = divided.grants.get(name)
        waits = divided.waiting.get(name, "the controller has not seen the job yet")
        lines.append(
            BatchJobLine(
                job=name,
                tenant=request.tenant,
                state=divided.state(name),
                slots=divided.slots(name),
                wanted=request.slots,
                by=request.by,
                since=request.at if grant is None else grant.at,
                back_by=None if grant is None else grant.back_by,
                reason=waits if grant is None else grant.reason,
            )
        )
    return sorted(lines, key=lambda line: (line.state == JobState.QUEUED, line.since, line.job))


def tenants(lines: Sequence[BatchJobLine], configured: Mapping[str, BatchTenant]) -> list[BatchTenantLine]:
    """Describe the batch tenants of the site file, and what these jobs have."""
    return [
        BatchTenantLine(
            tenant=name,
            minimum=tenant.minimum,
            maximum=tenant.maximum,
            priority=tenant.priority,
            slots=sum(line.slots for line in lines if line.tenant == name),
            running=sum(line.tenant == name and line.state != JobState.QUEUED for line in lines),
            queued=sum(line.tenant == name and line.state == JobState.QUEUED for line in lines),
        )
        for name, tenant in configured.items()
    ]
