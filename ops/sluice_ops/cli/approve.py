"""`sluice approve`: another person answers a change that waits for approval."""

import time

import typer

from sluice_ops.channel.trail_queue import cli_user
from sluice_ops.cli.errors import WrongUsageError
from sluice_ops.cli.output import print_json, print_table
from sluice_ops.model.exit_codes import FAILED, OK
from sluice_ops.model.trail import what_of
from sluice_ops.operations.approvals import AnswerError, answer, waiting
from sluice_ops.operations.connect import open_channel
from sluice_ops.queries.formats import ago


def approve(change: str | None, *, refuse: bool, why: str, as_json: bool) -> None:
    """Answer `change`; without it, list the changes that wait."""
    if refuse and not why:
        message = "a refusal needs its reason, for the person who asked: add --why TEXT"
        raise WrongUsageError(message)
    if change is None:
        if refuse:
            message = "name the change to refuse; `sluice approve` lists the changes that wait"
            raise WrongUsageError(message)
        _list(as_json=as_json)
        return
    with open_channel() as channel:
        try:
            record = answer(channel, change, cli_user(), approved=not refuse, why=why)
        except AnswerError as error:
            if as_json:
                print_json({"change": change, "ok": False, "error": str(error)})
            else:
                typer.echo(str(error), err=True)
            raise typer.Exit(FAILED) from None
    if as_json:
        print_json({"change": change, "ok": True, "approved": not refuse})
    elif refuse:
        typer.echo(f"{change} is refused: {what_of(record.spec)}, asked by {record.by}. Nothing was changed.")
    else:
        typer.echo(
            f"{change} is approved: {what_of(record.spec)}, asked by {record.by}. It goes on now. To "
            "follow it: `sluice status`"
        )
    raise typer.Exit(OK)


def _list(*, as_json: bool) -> None:
    with open_channel() as channel:
        changes = waiting(channel)
    if as_json:
        print_json(
            [
                {
                    "change": change.id,
                    "what": what_of(change.spec),
                    "by": change.by,
                    "at": change.started_at,
                    "asked": None if change.asked is None else change.asked.model_dump(mode="json"),
                    "plan": change.plan.model_dump(mode="json"),
                }
                for change in changes
            ]
        )
        return
    print_table(
        ("change", "what", "by", "waits for", "ends in", "why"),
        (
            (
                change.id,
                what_of(change.spec),
                change.by,
                ago(change.started_at),
                f"{max(0.0, change.started_at + change.asked.within_seconds - time.time()) / 60:.0f} min",
                change.asked.why,
            )
            for change in changes
            if change.asked is not None
        ),
        "No change waits for approval.",
    )
    for change in changes:
        if change.asked is not None:
            typer.echo(f"{change.id} would do: {change.asked.plan}")
