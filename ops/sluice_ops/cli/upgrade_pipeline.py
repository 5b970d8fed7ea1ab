"""`sluice upgrade-pipeline`: upgrades one tier after the other, and goes back if one fails."""

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NoReturn

import typer

from sluice_ops.channel import Channel, ConflictError
from sluice_ops.channel.trail_queue import cli_user
from sluice_ops.cli.carry_out import ended_as_by_ctrl_c
from sluice_ops.cli.exit_codes import FAILED, OK, WrongUsageError
from sluice_ops.cli.output import print_json
from sluice_ops.model.change import Step
from sluice_ops.model.pipeline_upgrade import PipelineUpgrade
from sluice_ops.operations import pipeline_upgrade, requests
from sluice_ops.operations.connect import open_channel
from sluice_ops.operations.ends import StoppedError
from sluice_ops.planning.pipeline_upgrade import Complete, Next, Returned
from sluice_ops.planning.placement.cluster import RefusedError


def upgrade(
    release: str | None, canary: str | None, *, deadline: float, dry_run: bool, as_json: bool
) -> None:
    """Upgrade every tier to a release, and print what happens."""
    now = time.time()
    run = requests.change_id("cli", f"{datetime.fromtimestamp(now, UTC):%Y%m%d-%H%M%S-%f}"[:-3])
    ended_as_by_ctrl_c()
    with open_channel() as channel:
        mine = _Run(channel, run, deadline, as_json)
        try:
            begun = pipeline_upgrade.begin(
                channel, release, canary, run=run, by=cli_user(), now=now, dry_run=dry_run
            )
        except RefusedError as error:
            raise WrongUsageError(str(error)) from error
        except ConflictError as error:
            mine.fail(str(error))
        for sentence in begun.sentences:
            mine.say(sentence)
        if dry_run:
            _show(channel, begun, as_json=as_json)
            return
        try:
            mine.go_on()
        except (StoppedError, ConflictError) as error:
            mine.fail(str(error))


@dataclass(frozen=True)
class _Run:
    """One run of the command."""

    channel: Channel
    run: str
    deadline: float
    as_json: bool

    def go_on(self) -> None:
        """Upgrade, or go back, until nothing is left to do."""
        while True:
            state = pipeline_upgrade.continue_(self.channel, self.run)
            if (change := pipeline_upgrade.under_way(state)) is not None:
                self.carry_out(state, change)
                continue
            turn = pipeline_upgrade.next_turn(self.channel, state)
            match turn:
                case Next():
                    self.carry_out(pipeline_upgrade.take(self.channel, state, turn), turn)
                case Returned():
                    pipeline_upgrade.finish(self.channel, state)
                    self.fail(turn.sentence)
                case Complete():
                    pipeline_upgrade.finish(self.channel, state)
                    self.end(turn.sentence)
                    return

    def carry_out(self, state: PipelineUpgrade, turn: Next) -> None:
        """Carry out the change of a tier. Ctrl-C aborts it."""
        change, spec, by = pipeline_upgrade.change_of(state), pipeline_upgrade.spec_of(turn), cli_user()
        self.say(f"{turn.tier} {'goes back' if state.failed else 'is upgraded'} to {turn.release}")
        try:
            steps = requests.run(self.channel, change, spec, by, self.deadline, on_sentence=self._say_step)
        except KeyboardInterrupt:
            requests.abort(self.channel, change, spec, by, self._say_step)
            self.fail(pipeline_upgrade.stopped(self.channel, state, f"{turn.tier}: it was interrupted"))
        failed = next((each for each in steps if not each.result.ok), None)
        if failed is not None and pipeline_upgrade.is_unanswered(self.channel, state):
            why = f"{turn.tier}: {failed.step} failed: {failed.result.sentence}"
            self.fail(pipeline_upgrade.stopped(self.channel, state, why))

    def _say_step(self, step: Step, sentence: str) -> None:
        self.say(f"{step:<9} {sentence}")

    def say(self, sentence: str) -> None:
        """Print a line, unless the command prints JSON."""
        if not self.as_json:
            typer.echo(f"{time.strftime('%H:%M:%S')} {sentence}")

    def end(self, sentence: str) -> None:
        """Print that every tier runs the release."""
        if self.as_json:
            print_json({"ok": True, "sentence": sentence})
        else:
            typer.echo(f"Done: {sentence}")

    def fail(self, sentence: str) -> NoReturn:
        """Print why the upgrade ended before its end, and exit."""
        if self.as_json:
            print_json({"ok": False, "sentence": sentence})
        else:
            typer.echo(sentence, err=True)
        raise typer.Exit(FAILED)


def _show(channel: Channel, begun: pipeline_upgrade.Begun, *, as_json: bool) -> None:
    planned = pipeline_upgrade.plan(channel, begun.upgrade, cli_user())
    left = [tier for tier in begun.upgrade.before if tier not in begun.upgrade.upgraded]
    if as_json:
        first = None if planned is None else {"tier": planned[0], **planned[1].model_dump(mode="json")}
        print_json({"dry_run": True, "release": begun.upgrade.release, "tiers": left, "first": first})
    elif planned is None:
        typer.echo("No tier would be upgraded.")
    else:
        typer.echo(f"first, {planned[0]}: {planned[1].sentence}")
    raise typer.Exit(OK if planned is None or planned[1].ok else FAILED)
