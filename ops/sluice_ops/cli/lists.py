"""The commands that only read: hosts, tiers, holds, slots, shares, metrics, changes, operations,
trail.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from sluice_ops.cli.output import AsJson, print_json, print_table
from sluice_ops.queries.formats import ago, clock, moment

if TYPE_CHECKING:
    from sluice_ops.queries.lines import ChangeLine

app = typer.Typer()

Last = Annotated[int, typer.Option(metavar="NUMBER", help="How many lines.", min=1)]

NOT_UP = "The platform may have started a moment ago. See `sluice status`."


@app.command(epilog="Example: sluice hosts --json | jq -r '.[] | select(.state == \"up\").name'")
def hosts(*, as_json: AsJson = False) -> None:
    """List the hosts: zone, state, slots and drivers."""
    from sluice_ops.operations.snapshot import snapshot  # noqa: PLC0415
    from sluice_ops.queries import describe  # noqa: PLC0415

    lines = describe.hosts(snapshot())
    if as_json:
        print_json(lines)
        return
    print_table(
        ("host", "zone", "rack", "state", "since", "by", "slots", "drivers", "cpu", "MiB", "labels"),
        (
            (
                line.name,
                line.zone,
                line.rack,
                line.state,
                ago(line.since),
                line.by,
                line.slots,
                line.drivers,
                f"{line.cpu:g}",
                line.memory,
                line.labels,
            )
            for line in lines
        ),
        f"No host has registered. {NOT_UP}",
    )
    for line in lines:
        for note in (line.quarantine, line.ending):
            if note is not None:
                typer.echo(note)
    needed = [line.name for line in lines if line.reboot_needed]
    if needed:
        command = f"sluice rolling-reboot {','.join(needed)}"
        typer.echo(f"An update of {', '.join(needed)} needs a reboot. Next: {command}")


@app.command(epilog="Example: sluice tiers --json | jq '.[] | {name, state, host: .driver.host}'")
def tiers(*, as_json: AsJson = False) -> None:
    """List the tiers: hosts, state, rates, lag and latency."""
    from sluice_ops.operations.snapshot import snapshot  # noqa: PLC0415
    from sluice_ops.queries import describe  # noqa: PLC0415
    from sluice_ops.queries.figures import read_figures  # noqa: PLC0415

    figures = read_figures()
    lines = describe.tiers(snapshot(), figures)
    if as_json:
        print_json(lines)
        return
    print_table(
        (
            "tier",
            "kind",
            "mode",
            "state",
            "incarnation",
            "release",
            "state in",
            "driver",
            "workers",
            "in/s",
            "out/s",
            "lag",
            "latency ms",
            "last gap s",
        ),
        (
            (
                line.name,
                line.kind,
                line.mode,
                line.state,
                line.incarnation,
                line.release,
                None if line.partitions is None else f"{line.partitions} partitions",
                line.driver.host,
                line.workers_in_words
                if line.light
                else [f"{worker.host} {worker.state}" for worker in line.workers],
                line.rate_in,
                line.rate_out,
                line.lag,
                line.latency_ms,
                None if line.gap_seconds is None else f"{line.gap_seconds:.2f}",
            )
            for line in lines
        ),
        f"No tier is published. {NOT_UP}",
    )
    for sentence in describe.release_notes(lines):
        typer.echo(sentence)
    if figures.missing:
        typer.echo(f"No figures: {figures.missing}.", err=True)


@app.command(epilog="Example: sluice holds --json | jq '.[] | select(.ended == null)'")
def holds(*, as_json: AsJson = False) -> None:
    """List when intake was throttled, and which tier caused it."""
    from sluice_ops.operations.snapshot import snapshot  # noqa: PLC0415
    from sluice_ops.queries import describe  # noqa: PLC0415

    lines = describe.holds(snapshot())
    if as_json:
        print_json(lines)
        return
    print_table(
        ("began", "ended", "throttled", "because of"),
        ((ago(line.begun), ago(line.ended), line.tier, f"{line.culprit} {line.sentence}") for line in lines),
        "No tier was throttled.",
    )


@app.command(epilog="Example: sluice slots --json | jq '.[] | select(.tenant == \"batch\")'")
def slots(*, as_json: AsJson = False) -> None:
    """List the slots: host, tenant, state, records read."""
    from sluice_ops.operations.snapshot import snapshot  # noqa: PLC0415
    from sluice_ops.queries import describe  # noqa: PLC0415
    from sluice_ops.queries.figures import read_figures  # noqa: PLC0415

    lines = describe.slots(snapshot(), read_figures())
    if as_json:
        print_json(lines)
        return
    print_table(
        ("slot", "host", "tenant", "incarnation", "state", "pid", "restarts", "records", "last end"),
        (
            (x.id, x.host, x.tenant, x.incarnation, x.state, x.pid, x.restarts, x.records, x.exit)
            for x in lines
        ),
        "No slot is assigned, because no tier was started. Trigger the DAG `tier_<name>` in Airflow, "
        "or run `sluice start TIER`.",
    )


@app.command(epilog="Example: sluice shares")
def shares(*, as_json: AsJson = False) -> None:
    """List the shares: numbers, their layer, slots now."""
    from sluice_ops.operations.snapshot import snapshot, the_site  # noqa: PLC0415
    from sluice_ops.queries import describe  # noqa: PLC0415
    from sluice_ops.snapshot.rules import rules_of  # noqa: PLC0415

    site, view = the_site(), snapshot()
    rules = rules_of(site, view.layers)
    lines = describe.shares(view, rules)
    if as_json:
        print_json(lines)
        return
    print_table(
        (
            "tenant",
            "minimum",
            "target",
            "maximum",
            "now",
            "spare",
            "extra",
            "has",
            "where",
            "layer",
            "by",
            "since",
            "until",
        ),
        (
            (
                x.tenant,
                x.minimum,
                x.target,
                x.maximum,
                describe.slots_text(x),
                x.spare,
                x.extra,
                x.held,
                x.where,
                x.layer,
                x.by,
                clock(x.since),
                clock(x.until),
            )
            for x in lines
        ),
        "No tenant has a share. Add shares below `shares:` in the site file.",
    )
    pipeline = describe.pipeline_share(view, rules, lines)
    if pipeline is not None:
        for line in (describe.pipeline_share_text(pipeline), *describe.pipeline_share_notes(pipeline)):
            typer.echo(line)


@app.command(epilog="Example: sluice metrics --json | jq -r '.[].targets[0]'")
def metrics(*, as_json: AsJson = False) -> None:
    """List the metrics endpoints of all processes.

    These are drivers, agents, controllers and the audit. The JSON has the format of Prometheus'
    file_sd_configs.
    """
    from sluice_ops.model.exporter import targets  # noqa: PLC0415
    from sluice_ops.operations.connect import open_channel  # noqa: PLC0415
    from sluice_ops.process.metrics_server import exporters  # noqa: PLC0415

    with open_channel() as channel:
        endpoints = exporters(channel)
    if as_json:
        print_json(targets(endpoints))
        return
    print_table(
        ("role", "tier", "incarnation", "host", "controller", "metrics"),
        (
            (x.role, x.tier, x.incarnation, x.host, x.controller, f"http://{x.address}/metrics")
            for x in endpoints
        ),
        f"No process has published its metrics endpoint. {NOT_UP}",
    )


@app.command(epilog="Example: sluice trail --by cli:anna --last 100")
def trail(
    last: Last = 20,
    *,
    by: Annotated[
        str | None, typer.Option(metavar="USER", help="Only requests of this user, such as cli:anna.")
    ] = None,
    change: Annotated[str | None, typer.Option(metavar="ID", help="Only this change.")] = None,
    as_json: AsJson = False,
) -> None:
    """List all requests with user and outcome, newest last.

    Entries are never changed.
    """
    from sluice_ops.queries.trail_history import trail_history  # noqa: PLC0415

    lines, missing = trail_history(last, by, change)
    if missing is not None:
        typer.echo(f"{missing}.", err=True)
    if as_json:
        print_json(lines)
        return
    print_table(
        ("when", "who", "layer", "what", "outcome", "change", "why"),
        ((moment(x.at), x.by, x.layer, x.what, x.outcome, x.change, x.sentence) for x in lines),
        "No change has been requested yet." if by is None and change is None else "No entry matches.",
    )


@app.command(epilog="Example: sluice changes --last 5")
def changes(
    *,
    last: Last = 20,
    as_json: AsJson = False,
) -> None:
    """List changes with time and gap, predicted and measured.

    Starts and stops are listed, too. The newest is last.
    """
    from sluice_ops.queries.history import changes as read  # noqa: PLC0415

    lines = read(last)
    if as_json:
        print_json(lines)
        return
    print_table(
        ("started", "change", "what", "by", "state", "predicted", "took", "predicted gap", "gap"),
        (
            (
                f"{ago(x.started_at)} ago",
                x.id,
                x.what,
                x.by,
                _undone(x) if x.state == "aborted" else x.state,
                _seconds(x.predicted_seconds, 0),
                _seconds(x.seconds, 0),
                _seconds(x.predicted_gap_seconds, 2),
                _seconds(x.gap_seconds, 2),
            )
            for x in lines
        ),
        "No change was carried out yet. Try `sluice drain h2 --dry-run`.",
    )


def _undone(line: "ChangeLine") -> str:
    """Return the state of an aborted change, with the abort's measured and predicted time."""
    took, predicted = _seconds(line.steps.get("abort"), 0), _seconds(line.abort_predicted_seconds, 0)
    return (
        line.state
        if took is None
        else f"{line.state} in {took}" + ("" if predicted is None else f", predicted {predicted}")
    )


def _seconds(value: float | None, digits: int) -> str | None:
    return None if value is None else f"{value:.{digits}f} s"


@app.command(epilog="Example: sluice operations cli-drain-h2-20260101-101500-123")
def operations(
    change: Annotated[
        str | None,
        typer.Argument(metavar="ID", help="A change or an operation: show its steps with their journals."),
    ] = None,
    *,
    last: Last = 20,
    as_json: AsJson = False,
) -> None:
    """List the posted steps, newest last.

    With a change, also the controller's journal of each step.
    """
    from sluice_ops.queries.history import history  # noqa: PLC0415

    lines = history(change, last)
    if as_json:
        print_json(lines)
        return
    print_table(
        ("posted", "change", "what", "step", "by", "state", "result"),
        (
            (f"{ago(x.posted_at)} ago", x.change, f"{x.kind} {x.subject}", x.step, x.by, x.state, x.sentence)
            for x in lines
        ),
        "No step was posted yet. Try `sluice drain h2 --dry-run`."
        if change is None
        else f"No step of {change!r} is known: it is too old, or the name is wrong. "
        "See `sluice operations` and `sluice changes`.",
    )
    if change:
        for line in lines:
            for sentence in line.journal:
                typer.echo(f"{line.step}: {sentence}")
