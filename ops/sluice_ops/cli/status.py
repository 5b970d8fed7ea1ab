"""`sluice status`: one screen with hosts, tiers, shares, changes in progress and problems.

A service that does not answer is a note on the screen; the rest is shown.
"""

import time

import typer

from sluice_ops.channel import ChannelAwayError
from sluice_ops.cli.output import print_json, print_table, text
from sluice_ops.model.alert import AlertRecord
from sluice_ops.model.exit_codes import AWAY
from sluice_ops.operations.snapshot import snapshot_with_figures, the_site
from sluice_ops.queries import describe
from sluice_ops.queries.alerts import notes as alert_notes
from sluice_ops.queries.figures import Figures, read_figures
from sluice_ops.queries.formats import ago, clock
from sluice_ops.queries.lines import HostLine, SourceLine, TierLine
from sluice_ops.queries.remembered_units import remembered_units
from sluice_ops.queries.sources import source_lines
from sluice_ops.queries.status import Shares, doing, shares_of, status_of, troubles
from sluice_ops.site import project
from sluice_ops.snapshot.view import View


def show(*, as_json: bool) -> None:
    """Print the status; the exit code is AWAY if ZooKeeper does not answer."""
    figures = read_figures()
    away = []
    view: View | None = None
    alerts = AlertRecord()
    shares = Shares()
    now = time.time()
    sources: list[SourceLine] = []
    try:
        view, alerts, figures_of_sources = snapshot_with_figures()
        sources = source_lines(view, figures_of_sources, now)
        shares = shares_of(view, the_site)
    except ChannelAwayError as error:
        away.append(f"{error}. {_without_zookeeper()}")
    status = status_of(view, shares, figures, project.home(), now, sources)
    status["notes"] += [*alert_notes(alerts), *shares.notes, *away]
    if as_json:
        print_json(status)
    elif view is None:
        _print_remembered(figures)
    else:
        _print(view, describe.hosts(view), describe.tiers(view, figures), sources, shares)
    if not as_json:
        for note in status["notes"]:
            typer.echo(note)
    if view is None:
        raise typer.Exit(AWAY)


def _print(
    view: View, hosts: list[HostLine], tiers: list[TierLine], sources: list[SourceLine], shares: Shares
) -> None:
    if view.status is None:
        typer.echo(
            "No controller has reported yet, so no tier is started or changed. See `sluice logs controller`."
        )
    else:
        typer.echo(
            f"Controller {view.status.leader}: {view.status.sentence} (last change {ago(view.status.at)} ago)"
        )
    now = time.time()
    steps = doing(view, now)
    for step in steps:
        at = f"step {step['step']}" if step["step"] else "between steps"
        typer.echo(
            f"In progress: {step['what']}, {at} for {ago(step['since'])}, by {step['by']}: {step['sentence']}"
        )
        if step["progress"] is not None and (prediction := step["progress"].sentence(now)):
            typer.echo(f"  {prediction}")
    if not steps:
        typer.echo("No change is in progress.")
    print_table(
        ("host", "zone", "state", "runs"),
        ((host.name, host.zone, host.state, _runs(host, tiers)) for host in hosts),
        "\nNo host has registered. `sluice up` starts hosts on this machine; "
        "on other machines run `sluice agent --host NAME`.",
    )
    print_table(
        ("tier", "mode", "state", "inc.", "driver", "workers", "in/s", "out/s", "lag", "latency", "last gap"),
        (_tier_cells(tier) for tier in tiers),
        "\nNo tier is published. `sluice publish` publishes the pipeline that the site file names, "
        "and so does `sluice up`.",
    )
    if sources:
        print_table(
            (
                "source",
                "kind",
                "state",
                "host",
                "reads",
                "in/s",
                "records",
                "last",
                "waits",
                "429",
                "failures",
            ),
            (_source_cells(source, now) for source in sources),
            "",
        )
    print_table(
        ("share of", "slots", "minimum", "target", "maximum", "spare", "set by", "since", "until"),
        (
            (
                share.tenant,
                share.held,
                share.minimum,
                describe.slots_text(share),
                share.maximum,
                share.spare,
                share.by,
                clock(share.since),
                clock(share.until),
            )
            for share in shares.lines
        ),
        "\nNo tenant has a share. Add shares below `shares:` in the site file.",
    )
    if shares.pipeline is not None:
        typer.echo(describe.pipeline_share_text(shares.pipeline))
    notes = (note for host in hosts for note in (host.quarantine, host.ending) if note is not None)
    for line in (*notes, *troubles(tiers)):
        typer.echo(line)


def _runs(host: HostLine, tiers: list[TierLine]) -> str:
    """Return the units of a host: for each tier its owner, the next incarnation, the standby; then
    others.
    """
    parts = []
    left = [*host.drivers, *host.slots]
    for tier in tiers:
        for number, what in ((tier.incarnation, ""), (tier.next, "next "), (tier.standby, "standby ")):
            drivers = [unit for unit in left if unit == f"driver-{tier.name}-{number}"]
            slots = [unit for unit in left if unit.startswith(f"slot-{tier.name}-{number}-")]
            workers = [] if not slots else [f"{len(slots)} worker" + ("s" if len(slots) > 1 else "")]
            if drivers or slots:
                parts.append(f"{tier.name} ({what}{' + '.join((*('driver' for _ in drivers), *workers))})")
            left = [unit for unit in left if unit not in {*drivers, *slots}]
    return ", ".join(parts + left) or "nothing"


def _tier_cells(tier: TierLine) -> tuple[object, ...]:
    beside = "" if tier.standby is None else f" + {tier.standby}"
    incarnation = (
        text(tier.incarnation) + beside + ("" if tier.next is None else f" → {tier.next} ({tier.phase})")
    )
    return (
        tier.name,
        tier.mode,
        tier.state + _intake(tier),
        incarnation,
        tier.driver.host,
        tier.workers_in_words,
        tier.rate_in,
        tier.rate_out,
        tier.lag,
        None if tier.latency_ms is None else f"{tier.latency_ms:.0f} ms",
        None if tier.gap_seconds is None else f"{tier.gap_seconds:.2f} s",
    )


def _source_cells(source: SourceLine, now: float) -> tuple[object, ...]:
    return (
        f"{source.name} → {source.stream}",
        source.kind,
        source.state,
        source.host,
        source.where,
        source.rate,
        source.records,
        None if source.last is None else f"{now - source.last:.0f} s ago",
        None if source.waiting_bytes is None else f"{source.waiting_bytes:,} bytes",
        source.throttled,
        len(source.failures) or None,
    )


def _intake(tier: TierLine) -> str:
    if tier.held_for is not None:
        return f", throttled to {tier.admitted:,.0f}/s for {tier.held_for}"
    return ", catching up" if tier.metered else ""


def _without_zookeeper() -> str:
    """Return what it means that ZooKeeper does not answer, from the units of this machine."""
    units = [*remembered_units(project.home())]
    if units and all(unit.pid is None for unit in units):
        return (
            "No unit runs on this machine. `sluice up` starts the embedded platform; "
            "`sluice doctor` names the services that are down."
        )
    return "Tiers run on, but no change is possible until ZooKeeper answers."


def _print_remembered(figures: Figures) -> None:
    """Print what is known without ZooKeeper: the units of this machine, and the drivers'
    figures.
    """
    rows = (
        (unit.host, unit.unit, "stopped" if unit.pid is None else f"runs, pid {unit.pid}")
        for unit in remembered_units(project.home())
    )
    print_table(
        ("host", "unit", "on this machine"), rows, "No agent of this machine has a stored assignment."
    )
    print_table(
        ("tier", "inc.", "in/s", "out/s", "lag", "latency ms", "reported"),
        (
            (
                each.tier,
                each.incarnation,
                each.rate_in,
                each.rate_out,
                each.lag,
                each.latency_ms,
                f"{ago(each.at)} ago",
            )
            for each in figures.tiers.values()
        ),
        "",
    )
