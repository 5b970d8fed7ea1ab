"""`sluice audit`: shows whether every input record of each tier was processed, and lists the
losses.
"""

import time

import typer

from sluice_ops.channel import ChannelAwayError, trail_queue
from sluice_ops.channel.trail_queue import cli_user
from sluice_ops.cli.output import print_json, print_table
from sluice_ops.model import paths
from sluice_ops.model.access import Role
from sluice_ops.model.exit_codes import FAILED
from sluice_ops.model.incarnation import TierWanted
from sluice_ops.model.trail import Entry, Outcome
from sluice_ops.operations.connect import open_channel
from sluice_ops.queries.figures import Audited, Figures, read_figures, settle
from sluice_ops.queries.formats import ago, moment
from sluice_ops.queries.verdicts import verdict
from sluice_ops.site.installation import PlatformAwayError

STALLED_SECONDS = 60.0
"""The audit checks each tier every few seconds; without a check for this long, the audit of the
tier is stalled.
"""
SHOWN = 10
"""Most losses on one screen; --json has all."""


def show(settled: int | None, *, as_json: bool) -> None:
    """Print the audit; the exit code is FAILED if records are lost, or a tier is not audited."""
    settled_losses = 0 if settled is None else _settle(settled)
    figures = read_figures()
    if figures.missing:
        raise PlatformAwayError(figures.missing)
    now = time.time()
    stalled = [line.tier for line in figures.audit if now - line.at > STALLED_SECONDS]
    losing = sorted({loss.tier for loss in figures.losses})
    unaudited = [tier for tier in _running() if tier not in figures.looked_at]
    if as_json:
        tiers = [
            {**line.model_dump(mode="json"), "lost": lost, "verdict": words}
            for line, lost, words in _lines(figures)
        ]
        print_json(
            {
                "ok": not losing and not stalled and not unaudited,
                "lost": losing,
                "stands": stalled,
                "unaudited": unaudited,
                "settled": settled_losses,
                "tiers": tiers,
                "losses": figures.losses,
            }
        )
    else:
        if settled is not None:
            typer.echo(
                f"Settled: {settled_losses} losses up to number {settled}."
                if settled_losses
                else f"No loss up to number {settled} was open."
            )
        _print(figures, stalled)
        for tier in unaudited:
            typer.echo(f"{tier} should run, but the audit has not checked it yet. See `sluice logs audit`.")
    if losing or stalled or unaudited:
        raise typer.Exit(FAILED)


def _running() -> list[str]:
    """Return the published tiers that should run; none if ZooKeeper is away."""
    try:
        with open_channel() as channel:
            wanted = {
                tier: channel.read(paths.wanted(tier), TierWanted) for tier in channel.children("/tiers")
            }
    except ChannelAwayError:
        typer.echo(
            "ZooKeeper does not answer, so it is unknown whether every running tier is audited.", err=True
        )
        return []
    return [tier for tier, node in wanted.items() if node is None or node.value.running]


def _settle(number: int) -> int:
    """Settle losses, after an entry in the trail; return their number."""
    entry = Entry(at=time.time(), by=cli_user(), what=f"settle losses up to {number}", outcome=Outcome.DONE)
    with open_channel() as channel:
        channel.multi([trail_queue.write(Role.OPERATOR, entry)])
    return settle(number, cli_user())


def _moment(at: float | None) -> str | None:
    return None if at is None else moment(at)


def _print(figures: Figures, stalled: list[str]) -> None:
    print_table(
        ("tier", "verdict", "records", "again", "lost", "complete up to", "events up to", "checked"),
        (
            (
                line.tier,
                words,
                line.once,
                line.again,
                lost,
                _moment(line.complete),
                _moment(line.events),
                f"{ago(line.at)} ago",
            )
            for line, lost, words in _lines(figures)
        ),
        "The audit has seen no record yet. Its first check comes a few seconds after `sluice up`. "
        "See `sluice logs audit`.",
    )
    for line in figures.audit:
        if line.unseen:
            typer.echo(
                f"{line.tier}: {line.unseen} records were deleted from their stream before the audit read "
                "them. Whether one of them is lost is unknown; `sluice logs audit` names them. "
                "Give the stream a longer retention (retention.ms)."
            )
        if line.partial:
            typer.echo(f"{line.tier} is not audited from its first record: {_since(line)}{line.partial}.")
        if line.unknown:
            typer.echo(
                f"{line.tier} delivers at most once: up to {line.unknown} of its records may be lost, and "
                "were not sent again."
            )
        if line.late:
            typer.echo(
                f"{line.tier}: {line.late} records came later than State.lateness allows, and no result has "
                "them. Look for a sender that was away or has a wrong clock, or raise lateness. "
                "The metric sluice_tier_records_late_total shows when they came."
            )
    for loss in figures.losses[:SHOWN]:
        typer.echo(f"Loss {loss.number}, found {ago(loss.found_at)} ago: {loss.sentence}.")
    if len(figures.losses) > SHOWN:
        typer.echo(f"And {len(figures.losses) - SHOWN} more: `sluice audit --json` lists all.")
    if figures.losses:
        typer.echo(f"After you repaired the losses: `sluice audit --settle {figures.losses[-1].number}`.")
    if stalled:
        typer.echo(
            f"The audit has not checked {', '.join(stalled)} for a minute or more. See `sluice logs audit`."
        )


def _lines(figures: Figures) -> list[tuple[Audited, int, str]]:
    """Return for each tier the audit's figures, the number of lost records, and the verdict."""
    losing = {loss.tier for loss in figures.losses}
    return [(line, figures.lost(line.tier), verdict(line, line.tier in losing)) for line in figures.audit]


def _since(line: Audited) -> str:
    """Return where a tier's audit begins, as a part of a sentence; empty if unknown."""
    places = [
        f"{partition}:{offset}" for partition, offset in sorted(line.since.items()) if offset is not None
    ]
    return f"it begins at {', '.join(places)}, for " if places else ""
