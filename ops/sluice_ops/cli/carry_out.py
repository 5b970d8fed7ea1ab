"""Carries out one change from the command line: posts its steps, prints its journal and
its result.
"""

import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import typer

from sluice_ops.channel.trail_queue import cli_user
from sluice_ops.cli.output import print_json
from sluice_ops.model.change import ChangeSpec, Plan, Result, Step
from sluice_ops.model.exit_codes import FAILED, OK
from sluice_ops.model.wording import workers
from sluice_ops.operations.connect import open_channel
from sluice_ops.operations.requests import StepResult, abort, change_id, run
from sluice_ops.queries.formats import subject


def identity_of(spec: ChangeSpec) -> str:
    """Return the id of a new change, such as `cli-drain-h2-20260101-101500-123`.

    It has milliseconds, so that a dry run and the change right after it differ.
    """
    words = [str(word) for word in (spec.host, spec.tier, spec.shift) if word is not None]
    return change_id("cli", spec.kind, *words, f"{datetime.now().astimezone():%Y%m%d-%H%M%S-%f}"[:-3])


@dataclass(frozen=True)
class Carried:
    """A change that was carried out, or planned in a dry run, with the results of its steps."""

    change: str
    spec: ChangeSpec
    dry_run: bool
    seconds: float
    steps: tuple[StepResult, ...]

    @property
    def done(self) -> bool:
        """Whether every step succeeded and nothing was aborted."""
        return all(step.result.ok for step in self.steps) and self.steps[-1].step is not Step.ABORT

    def tell(self, *, as_json: bool, ok: bool | None = None, **more: object) -> None:
        """Print the change and its steps.

        In JSON, `ok` (default: `done`) agrees with the exit code, and `more` is added.
        """
        if as_json:
            print_json(
                {
                    "change": self.change,
                    "kind": self.spec.kind,
                    "dry_run": self.dry_run,
                    "ok": self.done if ok is None else ok,
                    "seconds": round(self.seconds, 2),
                    "steps": [
                        {"step": step, **result.model_dump(mode="json")} for step, result in self.steps
                    ],
                    **more,
                }
            )
            return
        for step, result in self.steps:
            if not result.ok or step is Step.ABORT:
                typer.echo(f"{step} {'failed' if not result.ok else 'done'}: {result.sentence}", err=True)
        if self.dry_run and self.done:
            _print_plan(self.steps[0].result)
        elif self.done:
            typer.echo(f"Done in {self.seconds:.1f} s: {self.steps[-1].result.sentence}")


def carry_out(spec: ChangeSpec, *, deadline: float, dry_run: bool, as_json: bool) -> None:
    """Carry the change out, print the result, and exit with its code."""
    carried = carried_out(spec, deadline=deadline, dry_run=dry_run, as_json=as_json)
    carried.tell(as_json=as_json)
    raise typer.Exit(OK if carried.done else FAILED)


def carried_out(  # noqa: PLR0913 - the options of a command
    spec: ChangeSpec,
    *,
    deadline: float,
    dry_run: bool,
    as_json: bool,
    change: str | None = None,
    steps: Sequence[Step] | None = None,
) -> Carried:
    """Carry out `steps` (default: all) and print their journal; the caller prints the result.

    A dry run has no journal: its one sentence is the result.
    """
    change = change or identity_of(spec)
    say = _silent if as_json or dry_run else _say
    began = time.monotonic()
    ended_as_by_ctrl_c()
    with open_channel() as channel:
        typer.echo(
            f"{spec.kind} {subject(spec)}".strip()
            + (" (dry run)" if dry_run else "")
            + f", as change {change}",
            err=True,
        )
        try:
            done = run(
                channel, change, spec, cli_user(), deadline, dry_run=dry_run, steps=steps, on_sentence=say
            )
        except KeyboardInterrupt:
            if dry_run:
                raise
            typer.echo(
                "Interrupted: aborting the change. Press Ctrl-C again to exit now, and abort later with "
                "`sluice abort`.",
                err=True,
            )
            done = [StepResult(Step.ABORT, abort(channel, change, spec, cli_user(), say))]
    return Carried(change, spec, dry_run, time.monotonic() - began, tuple(done))


def ended_as_by_ctrl_c() -> None:
    """Make SIGTERM act as Ctrl-C, so that the maintenance lock is released and instances are
    terminated.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def _say(step: Step, sentence: str) -> None:
    typer.echo(f"{time.strftime('%H:%M:%S')} {step:<9} {sentence}")


def _silent(step: Step, sentence: str) -> None:
    del step, sentence


def _print_plan(result: Result) -> None:
    typer.echo(result.sentence)
    if "plan" not in result.details:
        return
    plan = Plan.model_validate(result.details["plan"], extra="ignore")
    for number, move in enumerate(plan.moves, start=1):
        after = _place(move.after.driver, move.after.slots)
        if move.joining:
            gives = f"releases {workers(move.released)}, then " if move.released else ""
            typer.echo(
                f"  {number}. {move.tier}: {gives}gets {workers(move.joining)} in place, on "
                f"{', '.join(move.after.slots[move.kept :])}"
            )
            continue
        if move.in_place:
            typer.echo(
                f"  {number}. {move.tier}: releases {move.released} of its workers in place, "
                f"and keeps {after}"
            )
            continue
        before = "nowhere" if move.before is None else _place(move.before.driver, move.before.slots)
        typer.echo(f"  {number}. {move.tier}: {before} → {after}")
    for note in plan.notes:
        typer.echo(f"  note: {note}")
    no_gap = ", without a gap" if plan.moves else ""
    gap = (
        f", with a gap of about {plan.predicted_gap_seconds:g} s in a tier's output"
        if plan.predicted_gap_seconds
        else no_gap
    )
    if plan.predicted_seconds or not plan.unpredicted:
        typer.echo(f"  predicted: about {plan.predicted_seconds:.0f} s in all{gap}")
    if plan.unpredicted:
        typer.echo(f"  not predicted: {plan.unpredicted}")


def _place(driver: str, slots: tuple[str, ...]) -> str:
    return f"driver {driver}, workers {', '.join(slots)}" if slots else f"driver {driver}"
