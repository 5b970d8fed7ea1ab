"""`sluice drain-to-empty`: pauses each tier once it is empty, and prints the receipt."""

import time

import typer

from sluice_ops.channel import Channel, ConflictError
from sluice_ops.channel.trail_queue import cli_user
from sluice_ops.cli.carry_out import ended_as_by_ctrl_c
from sluice_ops.cli.changes_in_turn import ChangesInTurn, new_run
from sluice_ops.cli.output import print_json, print_table
from sluice_ops.model.change import RESUME
from sluice_ops.model.exit_codes import FAILED, OK
from sluice_ops.model.pipeline_drain import DrainReceipt, PipelineDrain
from sluice_ops.operations import pipeline_drain
from sluice_ops.operations.connect import open_channel
from sluice_ops.operations.ends import StoppedError
from sluice_ops.planning.pipeline_drain import Empty, Fail, Measured, Returned, Wait, stopped
from sluice_ops.queries.in_flight import measure

LOOK_SECONDS = 1.0
"""Time between two looks at what is left."""


def drain(*, deadline: float, dry_run: bool, as_json: bool) -> None:
    """Drain the pipeline to empty, and print what happens and the receipt."""
    now = time.time()
    run = new_run(now)
    ended_as_by_ctrl_c()
    with open_channel() as channel:
        mine = _Run(channel, run, deadline, as_json)
        begun = mine.begin(
            lambda: pipeline_drain.begin(
                channel, measure(), run=run, by=cli_user(), deadline=deadline, now=now, dry_run=dry_run
            )
        )
        if dry_run:
            _show(channel, begun.drain, as_json=as_json)
        try:
            receipt = mine.go_on_or_take_back()
        except (StoppedError, ConflictError) as error:
            mine.end_badly(str(error))
    print_receipt(receipt, as_json=as_json)


class _Run(ChangesInTurn):
    """One run of the command."""

    def go_on_or_take_back(self) -> DrainReceipt:
        """Drain; Ctrl-C takes the pauses back, and a second Ctrl-C leaves them."""
        try:
            return self.go_on()
        except KeyboardInterrupt:
            self.say("interrupted; the pauses are taken back")
        try:
            state = pipeline_drain.continue_(self.channel, self.run, time.time())
            if not state.failed and not state.ended and state.kind is None:
                pipeline_drain.note(self.channel, state, Fail("it was interrupted"))
            return self.go_on()
        except KeyboardInterrupt:
            state = pipeline_drain.continue_(self.channel, self.run, time.time())
            self.end_badly(stopped(state, "it was interrupted again"))

    def go_on(self) -> DrainReceipt:
        """Pause, or take back, until nothing is left to do; return the receipt."""
        waited = ""
        while True:
            now = time.time()
            state = pipeline_drain.continue_(self.channel, self.run, now)
            if state.kind is not None:
                self.carry_out(state, state.kind)
                continue
            measured = Measured() if state.failed else measure()
            turn = pipeline_drain.next_turn(self.channel, state, measured, now)
            if isinstance(turn, Wait):
                if turn.reason != waited:
                    self.say(f"waits: {turn.reason}")
                waited = turn.reason
                time.sleep(LOOK_SECONDS)
                continue
            pipeline_drain.note(self.channel, state, turn)
            match turn:
                case Fail():
                    self.say(f"fails: {turn.why}")
                case Returned():
                    self.end_badly(turn.sentence)
                case Empty():
                    self.say(turn.sentence)
                    return turn.receipt

    def carry_out(self, state: PipelineDrain, kind: str) -> None:
        """Carry out the last change. If it failed, the next turn reads why, and takes back."""
        verb = "resumed" if kind == RESUME else "paused"
        self.say(f"to be {verb}: {', '.join(state.tiers) or 'no tier'}")
        change, spec = pipeline_drain.change_of(state), pipeline_drain.spec_of(state, kind)
        failed = self.carry_out_change(change, spec)
        if failed is not None and pipeline_drain.is_unanswered(self.channel, state):
            self.end_badly(stopped(state, f"{failed.step} failed: {failed.result.sentence}"))


def _show(channel: Channel, state: PipelineDrain, *, as_json: bool) -> None:
    result = pipeline_drain.plan(channel, state, cli_user())
    if as_json:
        print_json({"dry_run": True, **result.model_dump(mode="json")})
    else:
        typer.echo(f"first: {result.sentence}")
    raise typer.Exit(OK if result.ok else FAILED)


def print_receipt(receipt: DrainReceipt, *, as_json: bool) -> None:
    """Print the audit's numbers of each tier and stream."""
    if as_json:
        tiers = [{**tier.model_dump(mode="json"), "in_flight": tier.in_flight} for tier in receipt.tiers]
        print_json({"ok": True, "at": receipt.at, "in_flight": receipt.in_flight, "tiers": tiers})
        return
    print_table(
        ("tier", "stream", "records", "read", "in flight", "out", "quarantined", "audit"),
        (
            (
                tier.tier,
                each.stream,
                each.records,
                each.read,
                f"{max(0, each.left)} wait outside" if each.outside else each.left,
                _out(tier.outputs, tier.sink) if each is tier.inputs[0] else "",
                tier.quarantined if each is tier.inputs[0] else "",
                (tier.verdict or "no record seen") if each is tier.inputs[0] else "",
            )
            for tier in receipt.tiers
            for each in tier.inputs
        ),
        "No tier.",
    )
    typer.echo("Nothing is in flight. To let records flow again: `sluice resume`")


def _out(outputs: dict[str, int], sink: int | None) -> str:
    if sink is not None:
        return f"{sink} in the sink"
    return ", ".join(f"{count} in {stream}" for stream, count in outputs.items())
