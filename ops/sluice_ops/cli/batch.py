"""`sluice batch`: shows how the slots of `batch` are divided among batch jobs."""

import typer

from sluice_ops.cli.output import AsJson, print_json, print_table
from sluice_ops.queries.formats import ago, clock

app = typer.Typer()


@app.command(epilog="Example: sluice batch, or: sluice batch --json | jq '.jobs[] | select(.slots == 0)'")
def batch(*, as_json: AsJson = False) -> None:
    """List batch tenants and batch jobs, and why a job waits.

    A running job that has lost slots has the time until which its tasks in these slots may run. The
    last line says how fast slots went back to tiers.
    """
    from sluice_ops.model.batch import BatchGrants  # noqa: PLC0415
    from sluice_ops.operations.snapshot import snapshot, the_site  # noqa: PLC0415
    from sluice_ops.queries import batch_queue  # noqa: PLC0415

    view = snapshot()
    jobs = batch_queue.jobs(view.batch_requests, view.batch_grants or BatchGrants())
    site = the_site()
    tenants = batch_queue.tenants(jobs, site.batch_tenants)
    reclaims = batch_queue.reclaims(view.batch_reclaims, site.reclaim_seconds)
    if as_json:
        print_json({"tenants": tenants, "jobs": jobs, "reclaims": reclaims})
        return
    print_table(
        ("tenant", "minimum", "maximum", "priority", "slots", "running", "queued"),
        (
            (
                line.tenant,
                line.minimum,
                line.maximum,
                line.priority,
                line.slots,
                line.running,
                line.queued,
            )
            for line in tenants
        ),
        "The site file has no batch tenant.",
    )
    print_table(
        ("job", "tenant", "state", "slots", "wanted", "since", "back by", "by", "reason"),
        (
            (
                line.job,
                line.tenant,
                line.state,
                line.slots,
                "all" if line.wanted is None else line.wanted,
                ago(line.since),
                clock(line.back_by),
                line.by,
                line.reason,
            )
            for line in jobs
        ),
        "No batch job runs or waits.",
    )
    typer.echo(batch_queue.reclaims_text(reclaims))
