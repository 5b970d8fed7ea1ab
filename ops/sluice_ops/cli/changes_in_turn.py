"""What the commands share that carry out several changes, one after the other."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NoReturn, Protocol, TypeVar

import typer

from sluice_ops.channel import Channel, ConflictError
from sluice_ops.channel.trail_queue import cli_user
from sluice_ops.cli.errors import WrongUsageError
from sluice_ops.cli.output import print_json
from sluice_ops.model.change import ChangeSpec, Step
from sluice_ops.model.exit_codes import FAILED
from sluice_ops.model.ids import ChangeId
from sluice_ops.operations import requests
from sluice_ops.planning.placement.cluster import RefusedError


def new_run(now: float) -> str:
    """Return the id of a run that begins at the epoch seconds `now`."""
    return requests.change_id("cli", f"{datetime.fromtimestamp(now, UTC):%Y%m%d-%H%M%S-%f}"[:-3])


class Begun(Protocol):
    """What such a command has begun."""

    @property
    def sentences(self) -> Sequence[str]:
        """What a run says first."""
        ...


B = TypeVar("B", bound=Begun)


@dataclass(frozen=True)
class ChangesInTurn:
    """One run of such a command."""

    channel: Channel
    run: str
    deadline: float
    as_json: bool

    def begin(self, begin: Callable[[], B]) -> B:
        """Begin, and print what the run says first. A refusal is wrong usage."""
        try:
            begun = begin()
        except RefusedError as error:
            raise WrongUsageError(str(error)) from error
        except ConflictError as error:
            self.end_badly(str(error))
        for sentence in begun.sentences:
            self.say(sentence)
        return begun

    def carry_out_change(self, change: ChangeId, spec: ChangeSpec) -> requests.StepResult | None:
        """Carry out a change; return the step that failed, or None.

        Ctrl-C aborts the change; then KeyboardInterrupt.
        """
        by = cli_user()
        try:
            steps = requests.run(self.channel, change, spec, by, self.deadline, on_sentence=self._say_step)
        except KeyboardInterrupt:
            requests.abort(self.channel, change, spec, by, self._say_step)
            raise
        return next((each for each in steps if not each.result.ok), None)

    def _say_step(self, step: Step, sentence: str) -> None:
        self.say(f"{step:<9} {sentence}")

    def say(self, sentence: str) -> None:
        """Print a line, unless the command prints JSON."""
        if not self.as_json:
            typer.echo(f"{time.strftime('%H:%M:%S')} {sentence}")

    def end_badly(self, sentence: str, **fields: object) -> NoReturn:
        """Print why the command ended before its end, in JSON after `fields`, and exit."""
        if self.as_json:
            print_json({**fields, "ok": False, "sentence": sentence})
        else:
            typer.echo(sentence, err=True)
        raise typer.Exit(FAILED)
