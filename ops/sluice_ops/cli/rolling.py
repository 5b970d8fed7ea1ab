"""`sluice rolling-reboot`: reboots hosts in batches, and stops before it does harm."""

import time
from dataclasses import dataclass
from typing import NoReturn

import typer

from sluice_ops.channel import ConflictError
from sluice_ops.channel.trail_queue import cli_user
from sluice_ops.cli.carry_out import ended_as_by_ctrl_c
from sluice_ops.cli.changes_in_turn import ChangesInTurn, new_run
from sluice_ops.cli.errors import WrongUsageError
from sluice_ops.cli.output import print_json
from sluice_ops.model.exit_codes import FAILED, OK
from sluice_ops.model.rolling import RollingReboot
from sluice_ops.operations import rolling
from sluice_ops.operations.connect import open_channel
from sluice_ops.operations.ends import StoppedError
from sluice_ops.operations.snapshot import the_site
from sluice_ops.planning.placement.cluster import RefusedError
from sluice_ops.planning.rolling import Batch, Begun, Complete, Stop, Wait
from sluice_ops.queries.formats import moment


def roll(  # noqa: PLR0913 - one parameter for each option
    place: str, at_once: int, *, only_needed: bool, deadline: float, dry_run: bool, as_json: bool
) -> None:
    """Reboot the hosts at a place, `at_once` together, and print what happens."""
    now = time.time()
    run = new_run(now)
    ended_as_by_ctrl_c()
    with open_channel() as channel:
        mine = _Run(channel, run, deadline, as_json, place, at_once)
        try:
            begun = rolling.begin(
                channel, place, run=run, by=cli_user(), only_needed=only_needed, now=now, dry_run=dry_run
            )
        except RefusedError as error:
            raise WrongUsageError(str(error)) from error
        for sentence in rolling.first_sentences(begun):
            mine.say(sentence)
        planned = rolling.plan(channel, begun.reboot, at_once, cli_user())
        refusal = rolling.refusal(planned)
        if dry_run:
            _show(begun, planned, as_json=as_json)
            raise typer.Exit(OK if refusal is None else FAILED)
        if refusal is not None:
            mine.fail(refusal)
        try:
            sentence = mine.go_on()
        except (StoppedError, ConflictError) as error:
            mine.fail(str(error))
    if as_json:
        print_json({"place": place, "ok": True, "sentence": sentence, "left_out": begun.left_out})
    else:
        typer.echo(f"Done: {sentence}")


@dataclass(frozen=True)
class _Run(ChangesInTurn):
    """One run of the command."""

    place: str
    at_once: int

    def go_on(self) -> str:
        """Carry out batches until none is left; return what was done."""
        waited = ""
        while True:
            reboot, is_under_way = rolling.continue_(self.channel, self.place, self.run)
            if is_under_way:
                self.carry_out(reboot)
                continue
            window, now = the_site().reboot_window, time.time()
            turn = rolling.next_turn(self.channel, reboot, self.at_once, window, now)
            match turn:
                case Batch():
                    self.carry_out(rolling.take(self.channel, reboot, turn, now))
                case Wait():
                    if turn.reason != waited:
                        self.say(f"waiting until {moment(turn.until)}: {turn.reason}")
                    waited = turn.reason
                    time.sleep(max(0.0, turn.until - time.time()))
                case Stop():
                    self.fail(turn.sentence)
                case Complete():
                    rolling.complete(self.channel, reboot)
                    return turn.sentence

    def carry_out(self, reboot: RollingReboot) -> None:
        """Carry out the last batch."""
        self.say(f"batch {reboot.number}: {', '.join(reboot.batch)}")
        try:
            failed = self.carry_out_change(rolling.change_of(reboot), rolling.spec_of(reboot, reboot.batch))
        except KeyboardInterrupt:
            self.fail(rolling.failed_batch(reboot, "it was interrupted"))
        if failed is not None and rolling.when_to_ask_again(self.channel, reboot) is None:
            self.fail(rolling.failed_batch(reboot, f"{failed.step} failed: {failed.result.sentence}"))

    def fail(self, reason: str) -> NoReturn:
        """Print why the rolling reboot stopped, and exit."""
        self.end_badly(rolling.stopped(reason, self.place), place=self.place)


def _show(begun: Begun, planned: list[rolling.Planned], *, as_json: bool) -> None:
    if as_json:
        batches = [each.as_json() for each in planned]
        print_json({"dry_run": True, "batches": batches, "left_out": begun.left_out})
        return
    for number, each in enumerate(planned, start=1):
        typer.echo(f"  {number}. {', '.join(each.hosts)}: {each.result.sentence}")
    if not planned:
        typer.echo("No host would be rebooted.")
