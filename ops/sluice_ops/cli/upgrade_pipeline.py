"""`sluice upgrade-pipeline`: upgrades one tier after the other, and goes back if one fails."""

import time

import typer

from sluice_ops.channel import Channel, ConflictError
from sluice_ops.channel.trail_queue import cli_user
from sluice_ops.cli.carry_out import ended_as_by_ctrl_c
from sluice_ops.cli.changes_in_turn import ChangesInTurn, new_run
from sluice_ops.cli.output import print_json
from sluice_ops.model.exit_codes import FAILED, OK
from sluice_ops.model.pipeline_upgrade import PipelineUpgrade
from sluice_ops.operations import pipeline_upgrade
from sluice_ops.operations.connect import open_channel
from sluice_ops.operations.ends import StoppedError
from sluice_ops.planning.pipeline_upgrade import Complete, Next, Returned


def upgrade(
    release: str | None, canary: str | None, *, deadline: float, dry_run: bool, as_json: bool
) -> None:
    """Upgrade every tier to a release, and print what happens."""
    now = time.time()
    run = new_run(now)
    ended_as_by_ctrl_c()
    with open_channel() as channel:
        mine = _Run(channel, run, deadline, as_json)
        begun = mine.begin(
            lambda: pipeline_upgrade.begin(
                channel, release, canary, run=run, by=cli_user(), now=now, dry_run=dry_run
            )
        )
        if dry_run:
            _show(channel, begun, as_json=as_json)
            return
        try:
            mine.go_on()
        except (StoppedError, ConflictError) as error:
            mine.end_badly(str(error))


class _Run(ChangesInTurn):
    """One run of the command."""

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
                    self.end_badly(turn.sentence)
                case Complete():
                    pipeline_upgrade.finish(self.channel, state)
                    self.end(turn.sentence)
                    return

    def carry_out(self, state: PipelineUpgrade, turn: Next) -> None:
        """Carry out the change of a tier."""
        self.say(f"{turn.tier} {'goes back' if state.failed else 'is upgraded'} to {turn.release}")
        try:
            change, spec = pipeline_upgrade.change_of(state), pipeline_upgrade.spec_of(state, turn)
            failed = self.carry_out_change(change, spec)
        except KeyboardInterrupt:
            why = f"{turn.tier}: it was interrupted"
            self.end_badly(pipeline_upgrade.stopped(self.channel, state, why))
        if failed is not None and pipeline_upgrade.is_unanswered(self.channel, state):
            why = f"{turn.tier}: {failed.step} failed: {failed.result.sentence}"
            self.end_badly(pipeline_upgrade.stopped(self.channel, state, why))

    def end(self, sentence: str) -> None:
        """Print that every tier runs the release."""
        if self.as_json:
            print_json({"ok": True, "sentence": sentence})
        else:
            typer.echo(f"Done: {sentence}")


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
