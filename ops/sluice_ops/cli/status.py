"""`sluice status`: one screen that tells what runs where, how well, and what is being done; whatever is away is said."""

import time
from typing import Any

import typer

from sluice_ops.channel import ChannelAwayError
from sluice_ops.cli.exit_codes import AWAY
from sluice_ops.cli.output import print_json, print_table, text
from sluice_ops.model.status import STARVED
from sluice_ops.operations.snapshot import snapshot, the_site
from sluice_ops.queries import describe
from sluice_ops.queries.figures import Figures, Replaying, read_figures
from sluice_ops.queries.formats import ago, clock
from sluice_ops.queries.history import subject
from sluice_ops.queries.lines import HostLine, ShareLine, TierLine
from sluice_ops.queries.progress import progress
from sluice_ops.queries.remembered_units import remembered_units
from sluice_ops.site import endpoints, installation
from sluice_ops.site.site_file import SiteError
from sluice_ops.snapshot.rules import rules_of
from sluice_ops.snapshot.view import View

OLD_SECONDS = 15.0
"""Drivers write their figures every two seconds."""
OVER_SECONDS = 300.0
"""How long it may take to move a tier back to its number; after that a person is told."""


def show(*, as_json: bool) -> None:
    """Print it; the exit code tells scripts when ZooKeeper is away."""
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
        away.append(f"{error}: nothing is decided until it is back; what runs goes on.")
    tiers = None if view is None else describe.tiers(view, figures)
    left = [] if view is None else [f"{said}." for said in view.troubles]
    notes = [*_notes(figures, tiers, time.time()), *outstayed(shares, time.time()), *left, *away]
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
    """Say what is not as it looks, or soon will not be."""
    notes = [f"No figures: {figures.missing}."] if figures.missing else []
    runs = figures.tiers.keys() if tiers is None else {line.name for line in tiers if line.state == "running"}
    old = [
        f"{name} ({ago(each.at)} old)"
        for name, each in figures.tiers.items()
        if name in runs and now - each.at > OLD_SECONDS
    ]
    notes += [f"No new figures of {', '.join(old)}: what is shown of it was so then."] if old else []
    notes += [
        f"{tier}: {figures.lost(tier) or 'an unknown number of'} records are LOST: `sluice audit` tells which"
        for tier in sorted({loss.tier for loss in figures.losses})
    ]
    notes += describe.behind(tiers or [])
    notes += [replaying(replay, now) for replay in figures.replays]
    home = endpoints.home()
    if home.exists() and (free := installation.free(home)) < installation.LOW:
        notes.append(
            f"Disk: {free} MiB are free at {home}. Kafka, ZooKeeper and PostgreSQL stop when it is full, and go on when there is room."
        )
    return notes


def replaying(replay: Replaying, now: float) -> str:
    """Say how far a replay is and when it will be done; or that nobody goes on with it."""
    name = f"Replay {replay.number} of {replay.tier}"
    done = f"{name}: {replay.rows_out} put, {replay.dropped} dropped, {replay.left} of {replay.source} left"
    if now > replay.said_at + OLD_SECONDS:
        then = f"`sluice replay --resume {replay.number}`, or --cancel {replay.number}"
        return f"{done}; it stopped {ago(replay.said_at)} ago: {then}"
    if not replay.pace:
        return f"{done}; it {replay.sentence or 'begins'}"
    about = f"{done}, about {replay.left / replay.pace:.0f} s at {replay.pace:.0f}/s"
    return about + (f"; it {replay.sentence}" if replay.sentence else "")


def outstayed(shares: list[ShareLine], now: float) -> list[str]:
    """Say which numbers still hold though their time is over: what was to take them back has failed, or has to wait."""
    return [
        f"{share.tenant} keeps its number ({share.slots}, by {share.by}), which was to hold until {clock(share.until)}: taking it back "
        "waits for another change, or failed and is tried again; `sluice operations` tells"
        for share in shares
        if share.until is not None and share.until < now - OVER_SECONDS
    ]


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
    """Return the steps that wait for their result, and the change that holds the maintenance lock between its steps."""
    steps: list[dict[str, Any]] = [
        {
            "change": seen.operation.change,
            "what": f"{seen.operation.spec.kind} {subject(seen.operation.spec)}".strip(),
            "step": seen.operation.step,
            "by": seen.operation.by,
            "since": seen.operation.posted_at,
            "sentence": seen.last or "posted, not taken up yet",
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
                "sentence": "holds the maintenance lock and waits for its next step; `sluice abort` ends it",
            }
        )
    return [{**step, "progress": progress(view, step["change"], now)} for step in steps]


def _dumped(step: dict[str, Any]) -> dict[str, Any]:
    found = step["progress"]
    return {**step, "progress": None if found is None else found.model_dump(mode="json")}


def _print(view: View, hosts: list[HostLine], tiers: list[TierLine], shares: list[ShareLine]) -> None:
    if view.status is None:
        typer.echo(
            "No controller has said anything yet: nothing is decided. `sluice logs controller` may tell why."
        )
    else:
        typer.echo(f"Controller {view.status.leader}: {view.status.sentence} ({ago(view.status.at)} ago)")
    now = time.time()
    doing = _doing(view, now)
    for step in doing:
        at = f"step {step['step']}" if step["step"] else "between steps"
        typer.echo(
            f"Being done: {step['what']}, {at} for {ago(step['since'])}, by {step['by']}: {step['sentence']}"
        )
        if step["progress"] is not None and (said := step["progress"].sentence(now)):
            typer.echo(f"  {said}")
    if not doing:
        typer.echo("Nothing is being changed.")
    print_table(
        ("host", "zone", "state", "runs"),
        ((host.name, host.zone, host.state, _runs(host, tiers)) for host in hosts),
        "\nNo host has registered: `make up` starts three on this machine; elsewhere start `python -m sluice_ops.agent --host NAME`.",
    )
    print_table(
        ("tier", "mode", "state", "inc.", "driver", "workers", "in/s", "out/s", "lag", "latency", "last gap"),
        (_tier_cells(tier) for tier in tiers),
        "\nNo tier is published: `python -m sluice.commands.publish` does it, and `make up` runs that.",
    )
    print_table(
        ("share of", "slots", "minimum", "target", "maximum", "set by", "since", "until"),
        (
            (
                share.tenant,
                share.held,
                share.minimum,
                describe.aim(share),
                share.maximum,
                share.by,
                clock(share.since),
                clock(share.until),
            )
            for share in shares
        ),
        "\nNo tenant has a share: name some below `shares:` in the site file.",
    )
    for line in (*(host.quarantine for host in hosts if host.quarantine is not None), *troubles(tiers)):
        typer.echo(line)


def troubles(tiers: list[TierLine]) -> list[str]:
    """Say what holds up each tier that should run and does not, who is starved or reads not all, and whom who is behind holds back."""
    down = [
        f"{tier.name}: {tier.sentence}" + (f". It said last: {tier.error}" if tier.error else "")
        for tier in tiers
        if tier.state not in {"running", "paused", "stopped"}
    ]
    behind = []
    for tier in tiers:
        held = [other.name for other in tiers if other.held_for == tier.name]
        if tier.pressure is not None:
            behind.append(
                f"{tier.name} {tier.pressure}"
                + (f". Held back until it has caught up: {', '.join(held)}" if held else "")
            )
    unread = [
        f"{tier.name} does not read partitions that were added: {tier.unread}"
        for tier in tiers
        if tier.unread is not None
    ]
    narrow = [
        f"{tier.name} puts nothing yet into partitions that were added: {tier.narrow}"
        for tier in tiers
        if tier.narrow is not None
    ]
    hung = [f"{tier.name}: {tier.hung}" for tier in tiers if tier.hung is not None]
    return [*down, *hung, *_starved(tiers), *unread, *narrow, *behind]


def _starved(tiers: list[TierLine]) -> list[str]:
    """Say who is starved, all together of whom the same is to be done about it."""
    by_what: dict[str, list[str]] = {}
    for tier in tiers:
        if tier.starved is not None:
            where, _, done = tier.starved.partition(": ")
            by_what.setdefault(done, []).append(f"{tier.name} on {where.removeprefix(STARVED)}")
    return [
        f"Starved of processor time: {'; '.join(who)}. {done[:1].upper()}{done[1:]}."
        for done, who in by_what.items()
    ]


def _runs(host: HostLine, tiers: list[TierLine]) -> str:
    """Say what a host runs: of each tier its owner, what is being prepared, and its standby; then what is none of these."""
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
        tier.state
        + (f", held for {tier.held_for}" if tier.held_for else ", catching up" if tier.metered else ""),
        incarnation,
        tier.driver.host,
        ", ".join(f"{count} {state}" for state, count in states.items()),
        tier.rate_in,
        tier.rate_out,
        tier.lag,
        None if tier.latency_ms is None else f"{tier.latency_ms:.0f} ms",
        None if tier.gap_seconds is None else f"{tier.gap_seconds:.2f} s",
    )


def _print_remembered(figures: Figures) -> None:
    """Without ZooKeeper: what the agents of this machine were told last, and what the drivers say to PostgreSQL."""
    rows = (
        (unit.host, unit.unit, "does not run" if unit.pid is None else f"runs, pid {unit.pid}")
        for unit in remembered_units(endpoints.home())
    )
    print_table(
        ("host", "unit", "on this machine"), rows, "No agent of this machine remembers an assignment."
    )
    print_table(
        ("tier", "inc.", "in/s", "out/s", "lag", "latency ms", "said"),
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
