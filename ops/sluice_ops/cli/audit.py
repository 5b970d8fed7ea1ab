"""`sluice audit`: whether all that each tier was given has come out, and what has not."""

import time

import typer

from sluice_ops.channel import ChannelAwayError, trail_queue
from sluice_ops.channel.trail_queue import cli_user
from sluice_ops.cli.exit_codes import FAILED
from sluice_ops.cli.output import print_json, print_table
from sluice_ops.model import paths
from sluice_ops.model.access import Role
from sluice_ops.model.incarnation import TierWanted
from sluice_ops.model.status import Check
from sluice_ops.model.trail import Entry, Outcome
from sluice_ops.operations.connect import open_channel
from sluice_ops.queries.figures import Audited, Figures, read_figures, settle
from sluice_ops.queries.formats import ago
from sluice_ops.site.installation import PlatformAwayError

STANDS_SECONDS = 60.0
"""The audit looks every few seconds; after so long it is said that it does not."""
VERDICTS = {
    Check.RECORDS: "balanced",
    Check.SUMS: "balanced by its sums",
    Check.LAST: "batches follow on each other; of its rows, the last one's are looked at",
    Check.BATCHES: "batches follow on each other; its rows are not looked at",
}
"""What may be said of a tier of which nothing is lost."""
SHOWN = 10
"""The most losses on one screen; with --json all are told."""


def show(settled: int | None, *, as_json: bool) -> None:
    """Print it; the exit code tells scripts when something is lost, or nobody looks."""
    done = 0 if settled is None else _settle(settled)
    figures = read_figures()
    if figures.missing:
        raise PlatformAwayError(figures.missing)
    now = time.time()
    stands = [line.tier for line in figures.audit if now - line.at > STANDS_SECONDS]
    losing = sorted({loss.tier for loss in figures.losses})
    unaudited = [tier for tier in _running() if tier not in figures.looked_at]
    if as_json:
        tiers = [
            {**line.model_dump(mode="json"), "lost": lost, "verdict": found}
            for line, lost, found in _lines(figures)
        ]
        print_json(
            {
                "ok": not losing and not stands and not unaudited,
                "lost": losing,
                "stands": stands,
                "unaudited": unaudited,
                "settled": done,
                "tiers": tiers,
                "losses": figures.losses,
            }
        )
    else:
        if settled is not None:
            typer.echo(
                f"Settled: {done} losses up to number {settled}."
                if done
                else f"There was no loss up to number {settled} to settle."
            )
        _print(figures, stands)
        for tier in unaudited:
            typer.echo(
                f"{tier} is to run, and the audit has not looked at it: `sluice logs audit` tells why."
            )
    if losing or stands or unaudited:
        raise typer.Exit(FAILED)


def _running() -> list[str]:
    """Name the tiers that are published and to run; without ZooKeeper nothing is known of them."""
    try:
        with open_channel() as channel:
            wanted = {
                tier: channel.read(paths.wanted(tier), TierWanted) for tier in channel.children("/tiers")
            }
    except ChannelAwayError:
        typer.echo("ZooKeeper does not answer: whether every running tier is audited is not known.", err=True)
        return []
    return [tier for tier, node in wanted.items() if node is None or node.value.running]


def _settle(number: int) -> int:
    """Settle losses; that is in the trail before it is done."""
    entry = Entry(at=time.time(), by=cli_user(), what=f"settle losses up to {number}", outcome=Outcome.DONE)
    with open_channel() as channel:
        channel.multi([trail_queue.write(Role.OPERATOR, entry)])
    return settle(number, cli_user())


def _print(figures: Figures, stands: list[str]) -> None:
    print_table(
        ("tier", "verdict", "records", "again", "lost", "complete up to", "looked"),
        (
            (line.tier, found, line.once, line.again, lost, _moment(line.complete), f"{ago(line.at)} ago")
            for line, lost, found in _lines(figures)
        ),
        "The audit has not seen a record yet: it looks a few seconds after `make up`; `sluice logs audit` tells more.",
    )
    for line in figures.audit:
        if line.unseen:
            typer.echo(
                f"{line.tier}: {line.unseen} of its records were no longer in their stream when the audit came to them, and nobody knows "
                f"whether any is lost; `sluice logs audit` says which. Give the stream a longer retention (retention.ms)."
            )
        if line.partial:
            typer.echo(f"{line.tier} is not audited from its first record: {_since(line)}{line.partial}.")
        if line.unknown:
            typer.echo(
                f"{line.tier} delivers at most once: up to {line.unknown} of its records may be lost, and were not sent again."
            )
        if line.late:
            typer.echo(
                f"{line.tier}: {line.late} of its records came later than its State.lateness allows, and are in none of its results. "
                f"Look for a sender that was away or whose clock is wrong, or raise lateness; sluice_tier_records_late_total says when."
            )
    for loss in figures.losses[:SHOWN]:
        typer.echo(f"Loss {loss.number}, found {ago(loss.found_at)} ago: {loss.sentence}.")
    if len(figures.losses) > SHOWN:
        typer.echo(f"And {len(figures.losses) - SHOWN} more: `sluice audit --json` has all.")
    if figures.losses:
        typer.echo(f"When they are dealt with: `sluice audit --settle {figures.losses[-1].number}`.")
    if stands:
        typer.echo(
            f"The audit has not looked at {', '.join(stands)} for a minute: `sluice logs audit` tells why."
        )


def _lines(figures: Figures) -> list[tuple[Audited, int, str]]:
    """Return of each tier what was looked at, how many records are lost as far as they were counted, and the verdict."""
    losing = {loss.tier for loss in figures.losses}
    return [(line, figures.lost(line.tier), verdict(line, line.tier in losing)) for line in figures.audit]


def _since(line: Audited) -> str:
    """Say with which offsets the audit of a tier begins."""
    places = [
        f"{partition}:{offset}" for partition, offset in sorted(line.since.items()) if offset is not None
    ]
    return f"it begins at {', '.join(places)}, for " if places else ""


def _moment(complete: float | None) -> str | None:
    return None if complete is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(complete))


def verdict(line: Audited, lost: int) -> str:
    """Say it in a few words, and no more than was looked at."""
    if lost:
        return "LOST"
    if not line.judges:
        return "leaves records out on purpose: not judged"
    found = VERDICTS[line.checked]
    return f"{found}, but for {line.unseen} that were gone" if line.unseen else found
