"""Describes batch tenants and batch jobs from their nodes. Pure."""

from collections.abc import Mapping, Sequence

from sluice_ops.model.batch import BatchGrants, BatchRequest, BatchTenant, JobState, Reclaims
from sluice_ops.queries.lines import BatchJobLine, BatchTenantLine, ReclaimsLine

LAST_RECLAIMS = 20
"""How many of the slots that came back are listed."""


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


def reclaims(measured: Reclaims, limit: float) -> ReclaimsLine:
    """Describe how fast the last slots came back."""
    return ReclaimsLine(
        limit=limit,
        count=len(measured.ended),
        p50=measured.percentile(50),
        p99=measured.percentile(99),
        late=sum(each.late for each in measured.ended),
        going=len(measured.going),
        last=measured.ended[: -LAST_RECLAIMS - 1 : -1],
    )


def reclaims_text(line: ReclaimsLine) -> str:
    """Return one line about the slots that came back."""
    going = f" {line.going} go back now." if line.going else ""
    if line.p50 is None or line.p99 is None:
        return f"No slot of batch has gone back yet; the limit is {line.limit:g} s.{going}"
    return (
        f"The last {line.count} slots of batch went back within {line.p50:g} s (p50) and {line.p99:g} s "
        f"(p99); the limit is {line.limit:g} s, and {line.late} were later than theirs.{going}"
    )
