"""`sluice status`: one screen with hosts, tiers, shares, changes in progress and problems.

A service that does not answer is a note on the screen; the rest is shown.
"""

import time
from typing import Any

import typer

from sluice_ops.channel import ChannelAwayError
from sluice_ops.cli.exit_codes import AWAY
from sluice_ops.cli.output import print_json, print_table, text
from sluice_ops.model.scaler import Mode
from sluice_ops.model.status import STARVED
from sluice_ops.model.wording import workers
from sluice_ops.operations.snapshot import snapshot, the_site
from sluice_ops.queries import describe
from sluice_ops.queries.figures import Figures, Replaying, read_figures
from sluice_ops.queries.formats import ago, clock, subject
from sluice_ops.queries.lines import HostLine, ShareLine, TierLine
from sluice_ops.queries.progress import progress
from sluice_ops.queries.remembered_units import remembered_units
from sluice_ops.site import installation, project
from sluice_ops.site.site_file import SiteError
from sluice_ops.snapshot.rules import rules_of
from sluice_ops.snapshot.view import View

OLD_SECONDS = 15.0
"""The age at which figures are old. Drivers write them every two seconds."""
OVERDUE_SECONDS = 300.0
"""The time that the return to an earlier share may take before `sluice status` reports it."""


def show(*, as_json: bool) -> None:
    """Print the status; the exit code is AWAY if ZooKeeper does not answer."""
    figures = read_figures()
    away = []
    view: View | None = None
    shares: list[ShareLine] = []
    try:
        view = snapshot()
        shares = describe.shares(view, rules_of(the_site(), view.layers))
    except SiteError as error:
        away.append(f"No shares: {error}.")
    except ChannelAwayError as error:
        away.append(f"{error}. Tiers run on, but no change is possible until ZooKeeper answers.")
    tiers = None if view is None else describe.tiers(view, figures)
    unreadable = [] if view is None else [f"{trouble}." for trouble in view.unreadable]
    notes = [
        *_notes(figures, tiers, time.time()),
        *outstayed(shares, time.time()),
        *wanted_sizes(tiers or [], shares),
        *unreadable,
        *away,
    ]
    status = _status(view, tiers or [], shares, figures, notes)
    if as_json:
        print_json(status)
    elif view is None:
        _print_remembered(figures)
    else:
        _print(view, describe.hosts(view), tiers or [], shares)
    if not as_json:
        for note in notes:
            typer.echo(note)
    if view is None:
        raise typer.Exit(AWAY)


def _notes(figures: Figures, tiers: list[TierLine] | None, now: float) -> list[str]:
    """Return one line for each problem outside the tables."""
    notes = [f"No figures: {figures.missing}."] if figures.missing else []
    running = (
        figures.tiers.keys() if tiers is None else {line.name for line in tiers if line.state == "running"}
    )
    old = [
        f"{name} ({ago(each.at)} old)"
        for name, each in figures.tiers.items()
        if name in running and now - each.at > OLD_SECONDS
    ]
    notes += [f"Old figures: {', '.join(old)}. The tables show the last known values."] if old else []
    notes += [
        f"{tier}: {figures.lost(tier) or 'an unknown number of'} records are LOST: `sluice audit` lists them"
        for tier in sorted({loss.tier for loss in figures.losses})
    ]
    notes += describe.release_notes(tiers or [])
    notes += [replaying(replay, now) for replay in figures.replays]
    home = project.home()
    if home.exists() and (free := installation.free(home)) < installation.LOW:
        notes.append(
            f"Disk: {free} MiB are free at {home}. Kafka, ZooKeeper and PostgreSQL stop when the disk is "
            "full, and continue when space is free again."
        )
    return notes


def replaying(replay: Replaying, now: float) -> str:
    """Return a line about a replay: its progress and remaining time, or that its process
    stopped.
    """
    name = f"Replay {replay.number} of {replay.tier}"
    done = (
        f"{name}: {replay.rows_out} written, {replay.dropped} dropped as duplicates, "
        f"{replay.left} of {replay.source} left"
    )
    if now > replay.said_at + OLD_SECONDS:
        next_step = f"`sluice replay --resume {replay.number}`, or --cancel {replay.number}"
        return f"{done}; stopped {ago(replay.said_at)} ago: {next_step}"
    if not replay.pace:
        return f"{done}; the replay {replay.sentence or 'begins'}"
    remaining = f"{done}, about {replay.left / replay.pace:.0f} s at {replay.pace:.0f}/s"
    return remaining + (f"; the replay {replay.sentence}" if replay.sentence else "")


def outstayed(shares: list[ShareLine], now: float) -> list[str]:
    """Return a line for each temporary share that is still in force after its end."""
    return [
        f"{share.tenant} still has its temporary share ({share.slots}, by {share.by}), which ended at "
        f"{clock(share.until)}: the return waits for another change, or failed and is retried. "
        "See `sluice operations`"
        for share in shares
        if share.until is not None and share.until < now - OVERDUE_SECONDS
    ]


def wanted_sizes(tiers: list[TierLine], shares: list[ShareLine]) -> list[str]:
    """Return a line for each tier that the scaler would give another number of workers."""
    extra = {share.tenant: share.extra for share in shares}
    lines = []
    for tier in tiers:
        decision, away = tier.scaler, extra.get(tier.name, 0)
        if decision is None or decision.mode == Mode.OFF or not tier.workers:
            continue
        at_home = len(tier.workers) - away
        # paused workers are in the first number only; the second one is up to 15 s old
        if decision.wanted in {at_home, decision.slots - away}:
            continue
        number = f"{workers(decision.wanted)} instead of {at_home}: {decision.reason}"
        lines.append(
            f"{tier.name}: the scaler sets {number}"
            if decision.mode == Mode.ACT
            else f"{tier.name}: the scaler advises {number}. To let it act: `sluice scaler act {tier.name}`"
        )
    return lines


def _status(
    view: View | None, tiers: list[TierLine], shares: list[ShareLine], figures: Figures, notes: list[str]
) -> dict[str, Any]:
    return {
        "at": time.time(),
        "zookeeper": view is not None,
        "postgres": figures.missing is None,
        "controller": None
        if view is None or view.status is None
        else view.status.model_dump(mode="json", exclude={"tiers"}),
        "doing": [] if view is None else [_dumped(step) for step in _doing(view, time.time())],
        "hosts": [] if view is None else [line.model_dump(mode="json") for line in describe.hosts(view)],
        "tiers": [line.model_dump(mode="json") for line in tiers],
        "shares": [line.model_dump(mode="json") for line in shares],
        "replays": [replay.model_dump(mode="json") for replay in figures.replays],
        "notes": notes,
    }


def _doing(view: View, now: float) -> list[dict[str, Any]]:
    """Return the posted steps without a result, and the change that holds the lock between two
    steps.
    """
    steps: list[dict[str, Any]] = [
        {
            "change": seen.operation.change,
            "what": f"{seen.operation.spec.kind} {subject(seen.operation.spec)}".strip(),
            "step": seen.operation.step,
            "by": seen.operation.by,
            "since": seen.operation.posted_at,
            "sentence": seen.last or "posted; the controller has not started it",
        }
        for seen in view.operations.values()
    ]
    lock = view.lock
    if lock is not None and lock.change not in {step["change"] for step in steps}:
        record = view.changes.get(lock.change)
        what = f"{record.spec.kind} {subject(record.spec)}".strip() if record else "a change"
        idle = {"change": lock.change, "what": what, "step": None, "by": lock.by, "since": lock.since}
        steps.append(
            {
                **idle,
                "sentence": "holds the maintenance lock and waits for its next step; end it: `sluice abort`",
            }
        )
    return [{**step, "progress": progress(view, step["change"], now)} for step in steps]


def _dumped(step: dict[str, Any]) -> dict[str, Any]:
    shown = step["progress"]
    return {**step, "progress": None if shown is None else shown.model_dump(mode="json")}


def _print(view: View, hosts: list[HostLine], tiers: list[TierLine], shares: list[ShareLine]) -> None:
    if view.status is None:
        typer.echo(
            "No controller has reported yet, so no tier is started or changed. See `sluice logs controller`."
        )
    else:
        typer.echo(f"Controller {view.status.leader}: {view.status.sentence} ({ago(view.status.at)} ago)")
    now = time.time()
    doing = _doing(view, now)
    for step in doing:
        at = f"step {step['step']}" if step["step"] else "between steps"
        typer.echo(
            f"In progress: {step['what']}, {at} for {ago(step['since'])}, by {step['by']}: {step['sentence']}"
        )
        if step["progress"] is not None and (prediction := step["progress"].sentence(now)):
            typer.echo(f"  {prediction}")
    if not doing:
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
    print_table(
        ("share of", "slots", "minimum", "target", "maximum", "set by", "since", "until"),
        (
            (
                share.tenant,
                share.held,
                share.minimum,
                describe.slots_text(share),
                share.maximum,
                share.by,
                clock(share.since),
                clock(share.until),
            )
            for share in shares
        ),
        "\nNo tenant has a share. Add shares below `shares:` in the site file.",
    )
    notes = (note for host in hosts for note in (host.quarantine, host.ending) if note is not None)
    for line in (*notes, *troubles(tiers)):
        typer.echo(line)


def troubles(tiers: list[TierLine]) -> list[str]:
    """Return a line for each problem of a tier.

    Problems: a tier is down, hung or starved, does not use all partitions, or lags.
    """
    down = [
        f"{tier.name}: {tier.sentence}" + (f". Last error: {tier.error}" if tier.error else "")
        for tier in tiers
        if tier.state not in {"running", "paused", "stopped"}
    ]
    lagging = []
    for tier in tiers:
        throttled = [other.name for other in tiers if other.held_for == tier.name]
        if tier.pressure is not None:
            lagging.append(
                f"{tier.name} {tier.pressure}"
                + (f". Throttled until it has caught up: {', '.join(throttled)}" if throttled else "")
            )
    unread = [
        f"{tier.name} does not read the added partitions: {tier.unread}"
        for tier in tiers
        if tier.unread is not None
    ]
    narrow = [
        f"{tier.name} does not write to the added partitions yet: {tier.narrow}"
        for tier in tiers
        if tier.narrow is not None
    ]
    hung = [f"{tier.name}: {tier.hung}" for tier in tiers if tier.hung is not None]
    return [*down, *hung, *_starved(tiers), *unread, *narrow, *lagging]


def _starved(tiers: list[TierLine]) -> list[str]:
    """Return one line for all starved tiers with the same remedy."""
    by_remedy: dict[str, list[str]] = {}
    for tier in tiers:
        if tier.starved is not None:
            hosts, _, remedy = tier.starved.partition(": ")
            by_remedy.setdefault(remedy, []).append(f"{tier.name} on {hosts.removeprefix(STARVED)}")
    return [
        f"Starved of processor time: {'; '.join(starved)}. {remedy[:1].upper()}{remedy[1:]}."
        for remedy, starved in by_remedy.items()
    ]


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
    states: dict[str, int] = {}
    for worker in tier.workers:
        states[worker.state] = states.get(worker.state, 0) + 1
    return (
        tier.name,
        tier.mode,
        tier.state + _intake(tier),
        incarnation,
        tier.driver.host,
        ", ".join(f"{count} {state}" for state, count in states.items()),
        tier.rate_in,
        tier.rate_out,
        tier.lag,
        None if tier.latency_ms is None else f"{tier.latency_ms:.0f} ms",
        None if tier.gap_seconds is None else f"{tier.gap_seconds:.2f} s",
    )


def _intake(tier: TierLine) -> str:
    if tier.held_for is not None:
        return f", throttled to {tier.admitted:,.0f}/s for {tier.held_for}"
    return ", catching up" if tier.metered else ""


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
