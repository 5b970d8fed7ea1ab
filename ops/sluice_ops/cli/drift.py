"""`sluice drift`: shows where placement differs from the controller's plan, and repairs it."""

import time

import typer

from sluice_ops.channel.trail_queue import cli_user
from sluice_ops.cli.carry_out import carry_out, identity_of
from sluice_ops.cli.output import print_json, print_table
from sluice_ops.model.change import NO_DRIFT, NO_MOVE, REPAIR, ChangeSpec, Move, Plan, Step
from sluice_ops.model.exit_codes import FAILED
from sluice_ops.model.incarnation import Placement
from sluice_ops.operations.connect import open_channel
from sluice_ops.operations.requests import operation_id, read_result, run
from sluice_ops.queries.lines import DriftLine
from sluice_ops.site.installation import PlatformAwayError

LOOK_SECONDS = 20.0
"""The time that a controller has to answer."""


def repair(*, deadline: float, dry_run: bool, as_json: bool) -> None:
    carry_out(ChangeSpec(kind=REPAIR), deadline=deadline, dry_run=dry_run, as_json=as_json)


def show(*, as_json: bool) -> None:
    """Let the controller plan a repair, and print the plan."""
    spec = ChangeSpec(kind=REPAIR)
    change = identity_of(spec)
    with open_channel() as channel:
        result = run(channel, change, spec, cli_user(), LOOK_SECONDS, dry_run=True)[0].result
        answered = read_result(channel, operation_id(change, Step.PREFLIGHT)) is not None
    if not answered:
        raise PlatformAwayError(result.sentence)
    if not result.ok:
        typer.echo(f"no plan for the drift: {result.sentence}", err=True)
        raise typer.Exit(FAILED)
    plan = Plan.model_validate(result.details["plan"], extra="ignore")
    lines = [_line(move) for move in plan.moves]
    if as_json:
        predicted = {
            "predicted_seconds": plan.predicted_seconds,
            "predicted_gap_seconds": plan.predicted_gap_seconds,
        }
        print_json(
            {
                "at": time.time(),
                "drift": [line.model_dump() for line in lines],
                "notes": plan.notes,
                **predicted,
            }
        )
        return
    print_table(
        ("tier", "drift", "moves", "from", "to"),
        ((line.tier, line.why, line.moves, line.before, line.after) for line in lines),
        "No drift: every tier is placed as planned."
        if NO_DRIFT in plan.notes
        else "No move is possible now:",
    )
    for note in plan.notes:
        if note not in {NO_DRIFT, NO_MOVE}:
            typer.echo(note)
    if lines:
        typer.echo(
            f"`sluice drift --repair` takes about {plan.predicted_seconds:.0f} s, with a gap of about "
            f"{plan.predicted_gap_seconds:g} s in a tier's output."
        )


def _line(move: Move) -> DriftLine:
    return DriftLine(
        tier=move.tier, why=move.why, moves=move.moved, before=_place(move.before), after=_place(move.after)
    )


def _place(placement: Placement | None) -> str:
    if placement is None:
        return "nowhere"
    workers = f", workers {', '.join(placement.slots)}" if placement.slots else ""
    return f"driver {placement.driver}{workers}"
