"""`sluice alert`: lists the alerts, silences one, and tests the channels."""

from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated

import typer

from sluice_ops.cli.errors import WrongUsageError
from sluice_ops.cli.output import AsJson, print_json, print_table
from sluice_ops.model.alert import AlertRecord, AlertRequests
from sluice_ops.model.exit_codes import FAILED
from sluice_ops.queries.alerts import lines, shown, silence_lines
from sluice_ops.queries.formats import ago, clock

TEST_SECONDS = 60.0
"""How long a test waits for the controller and for the channels."""

app = typer.Typer()


class Action(StrEnum):
    """What `sluice alert` does."""

    LIST = "list"
    TEST = "test"
    SILENCE = "silence"
    UNSILENCE = "unsilence"


@app.command(
    epilog="Example: sluice alert, or: sluice alert silence host-lost:h1 --for 2h, or: sluice alert test"
)
def alert(
    action: Annotated[
        Action,
        typer.Argument(
            metavar="ACTION",
            help="list: the alerts. test: send a message to CHANNEL, or to all. "
            "silence, unsilence: tell nothing of KEY until a time, or tell of it again.",
        ),
    ] = Action.LIST,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="KEY|CHANNEL",
            help="The key of an alert, such as host-lost:h1 or 'host-lost:*'; or the channel to test.",
        ),
    ] = None,
    *,
    lasts: Annotated[
        str, typer.Option("--for", metavar="TIME", help="How long to silence, such as 30m, 2h or 1d.")
    ] = "1h",
    as_json: AsJson = False,
) -> None:
    """Show the alerts, silence one, or test the channels.

    Without arguments, the command lists what is wrong now, what was told about it, and the last
    alerts that are over. The controller sends alerts to the channels of the site file's `alerts`. A
    silence has an end; it applies within ten seconds.
    """
    from sluice_ops.channel.trail_queue import cli_user  # noqa: PLC0415
    from sluice_ops.operations import alerts  # noqa: PLC0415
    from sluice_ops.operations.connect import open_channel  # noqa: PLC0415
    from sluice_ops.operations.expiry import ExpiryError, ending  # noqa: PLC0415

    with open_channel() as channel:
        record = alerts.read_alerts(channel)
        if action is Action.LIST:
            _show(record, alerts.read_requests(channel), as_json=as_json)
            return
        if action is Action.TEST:
            _check_channel(record, name)
            identity = alerts.request_test(channel, name, cli_user())
            _show_test(alerts.wait_for_test(channel, identity, TEST_SECONDS), as_json=as_json)
            return
        if name is None:
            message = f"no alert is named: write `sluice alert {action} KEY`; `sluice alert` lists the keys"
            raise WrongUsageError(message)
        if action is Action.SILENCE:
            now = datetime.now(UTC)
            try:
                until = ending(lasts, now, None)
            except ExpiryError as error:
                message = f"--for {error}"
                raise WrongUsageError(message) from error
            alerts.silence(channel, name, until.timestamp(), cli_user())
            sentence = f"{name} is silenced until {clock(until.timestamp())}"
        elif alerts.unsilence(channel, name, cli_user()):
            sentence = f"{name} is told again"
        else:
            message = f"{name} is not silenced; `sluice alert` lists the silences"
            raise WrongUsageError(message)
    if as_json:
        print_json({"key": name, "sentence": sentence})
    else:
        typer.echo(sentence)


def _check_channel(record: AlertRecord, name: str | None) -> None:
    """Refuse a test of a channel that the controller does not know."""
    if name is not None and name not in record.channels:
        known = ", ".join(record.channels) or "none: add one below `alerts: channels:` in the site file"
        message = f"there is no channel {name!r}; channels: {known}"
        raise WrongUsageError(message)
    if not record.channels:
        message = "the site file has no channel: add one below `alerts: channels:`"
        raise WrongUsageError(message)


def _show(record: AlertRecord, requests: AlertRequests, *, as_json: bool) -> None:
    if as_json:
        print_json(shown(record, requests))
        return
    lasting = lines(record, requests)
    print_table(
        ("alert", "severity", "state", "since", "what happened"),
        ((line.key, line.severity, line.state, ago(line.since), line.happened) for line in lasting),
        "Nothing is wrong.",
    )
    for line in lasting:
        if line.state == "told":
            typer.echo(f"{line.key}: {line.do}")
    for silenced in silence_lines(requests):
        typer.echo(f"Silenced until {clock(silenced.until)} by {silenced.by}: {silenced.key}")
    for ended in reversed(record.ended[-5:]):
        typer.echo(f"Over since {ago(ended.gone_at)}: {ended.happened}")
    if not record.channels:
        typer.echo("No channel is named, so alerts are told here only: see `alerts` in the site file.")
    for name, health in record.channels.items():
        if health.failed_since is not None:
            typer.echo(f"Channel {name} takes no alerts for {ago(health.failed_since)}: {health.error}")


def _show_test(record: AlertRecord | None, *, as_json: bool) -> None:
    """Print the result of a test; exit with 1 if a channel failed."""
    results = {} if record is None else record.results
    if as_json:
        print_json({"answered": record is not None, "results": results})
    elif record is None:
        typer.echo(
            f"no answer within {TEST_SECONDS:.0f} s: is a controller running, and of this version? "
            "Next: sluice status"
        )
    for name, error in results.items() if not as_json else ():
        typer.echo(f"{name}: {f'failed: {error}' if error else 'taken'}")
    if record is None or any(results.values()):
        raise typer.Exit(FAILED)
