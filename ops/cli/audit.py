"""`sluice audit`: whether all that each tier was given has come out, and the first record that has not."""

import time

import typer

from ops.cli.ending import FAILED, PlatformAwayError
from ops.cli.figures import Audited, read_figures
from ops.cli.output import ago, print_json, print_table

STANDS_SECONDS = 60.0
"""The audit looks every few seconds; after so long it is said that it does not."""


def show(*, as_json: bool) -> None:
    """Print it; the exit code tells scripts when something is lost, or nobody looks."""
    figures = read_figures()
    if figures.missing:
        raise PlatformAwayError(figures.missing)
    now = time.time()
    lines = list(figures.audit)
    stands = [line.tier for line in lines if now - line.at > STANDS_SECONDS]
    lost = [line.tier for line in lines if line.lost]
    if as_json:
        print_json({"ok": not lost and not stands, "lost": lost, "stands": stands, "tiers": lines})
    else:
        print_table(
            ("tier", "verdict", "records", "again", "lost", "first lost", "looked"),
            ((line.tier, verdict(line), line.once, line.again, line.lost, line.first_lost, f"{ago(line.at)} ago") for line in lines),
            "The audit has not seen a record yet: it looks a few seconds after `make up`; `sluice logs audit` tells more.",
        )
        if stands:
            typer.echo(f"The audit has not looked at {', '.join(stands)} for a minute: `sluice logs audit` tells why.")
    if lost or stands:
        raise typer.Exit(FAILED)


def verdict(line: Audited) -> str:
    """Say it in a word."""
    if line.lost:
        return "LOST"
    return "balanced" if line.judges else "leaves records out on purpose: not judged"
