"""`sluice logs`: the end of a log, from this machine's files or through the agent of its host."""

import re
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sluice_ops.cli.errors import WrongUsageError
from sluice_ops.cli.output import AsJson, print_json
from sluice_ops.model.exit_codes import AWAY
from sluice_ops.model.wording import listed
from sluice_ops.site import project

if TYPE_CHECKING:
    from sluice_ops.channel import Channel
    from sluice_ops.queries.logs import Place
    from sluice_ops.snapshot.view import View

FOLLOW_SECONDS = 1.0
"""The time between two requests to another machine for new lines."""

app = typer.Typer()


@app.command(epilog="Example: sluice logs entry -n 100 -f, or: sluice logs h2/slot-counts-3-0/executor")
def logs(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="A tier (its driver), a host (its agent), a unit such as slot-counts-3-0, its executor "
            "such as slot-counts-3-0/executor, `controller`, or a service of this machine such as kafka. "
            "Without it: list the logs.",
        ),
    ] = None,
    *,
    lines: Annotated[
        int, typer.Option("--lines", "-n", metavar="NUMBER", help="Print this many last lines.", min=0)
    ] = 40,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print new lines until Ctrl-C.")] = False,
    host: Annotated[str | None, typer.Option("--host", metavar="HOST", help="The host of the unit.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print the end of a log, from whichever host has it.

    A log of this machine is read from its file. Otherwise the host's agent reads it, or the leading
    controller its own log; this needs the operator's credential. The log of an ended slot or driver
    is kept until 20 others of its host have ended.
    """
    if as_json and follow:
        message = "--json prints one answer, but --follow never ends: use only one of them"
        raise WrongUsageError(message)
    if name is None:
        _list(as_json=as_json)
        return
    output, files = Output(lines, follow, as_json), _files()
    local = name if host is None else f"{host}/{name}"
    if local in files:
        output.print_file(local, files[local])
    else:
        _print_by_channel(name, host, files, output)


@dataclass(frozen=True)
class Output:
    """How to print a log."""

    lines: int
    follow: bool
    as_json: bool

    def print_file(self, name: str, path: Path) -> None:
        """Print a log of this machine."""
        from sluice_ops.queries.unit_logs import tail  # noqa: PLC0415

        self.print(name, tail(path, self.lines, follow=self.follow))

    def print(self, name: str, texts: Iterator[str]) -> None:
        """Print texts as they come, or their lines as JSON."""
        if self.as_json:
            print_json({"log": name, "lines": "".join(texts).splitlines()})
            return
        with suppress(KeyboardInterrupt):
            for text in texts:
                sys.stdout.write(text)
                sys.stdout.flush()


def _files() -> dict[str, Path]:
    from sluice_ops.queries.unit_logs import service_logs, unit_logs  # noqa: PLC0415

    home = project.home()
    return service_logs(home) | unit_logs(home)


def _list(*, as_json: bool) -> None:
    from sluice_ops.channel import ChannelAwayError  # noqa: PLC0415
    from sluice_ops.operations.snapshot import snapshot  # noqa: PLC0415
    from sluice_ops.queries.logs import log_names  # noqa: PLC0415
    from sluice_ops.site.endpoints import EndpointsError  # noqa: PLC0415

    names = list(_files())
    try:
        elsewhere = log_names(snapshot())
    except (ChannelAwayError, EndpointsError, FileNotFoundError) as error:
        elsewhere = []
        typer.echo(f"Only the logs of this machine are listed: {error}", err=True)
    names += [name for name in elsewhere if name not in names]
    if as_json:
        print_json({"logs": names})
    else:
        typer.echo("\n".join(names) or "There are no logs yet.")


def _print_by_channel(name: str, host: str | None, files: dict[str, Path], output: Output) -> None:
    """Print the log of a tier, or of another machine."""
    from sluice_ops.channel import ChannelAwayError, NotAllowedError  # noqa: PLC0415
    from sluice_ops.operations.connect import open_channel  # noqa: PLC0415
    from sluice_ops.queries.logs import LogAwayError, UnknownLogError, find_log  # noqa: PLC0415
    from sluice_ops.site.endpoints import EndpointsError  # noqa: PLC0415
    from sluice_ops.snapshot.view import read_view  # noqa: PLC0415

    try:
        with open_channel() as channel:
            view = read_view(channel)
            place = find_log(view, name, host)
            if place.name in files:
                output.print_file(place.name, files[place.name])
            else:
                output.print(place.name, _remote(channel, view, place, output))
    except (EndpointsError, FileNotFoundError) as error:
        message = f"there is no log of {name!r} on this machine; logs: {', '.join(files) or 'none'}. {error}"
        raise WrongUsageError(message) from error
    except ChannelAwayError as error:
        newest = _newest_driver(files, name)
        if newest is None or isinstance(error, NotAllowedError):
            raise
        typer.echo(f"{error}; this is the newest log of {name} on this machine, {newest}:", err=True)
        output.print_file(newest, files[newest])
    except UnknownLogError as error:
        message = f"{error}; logs of this machine: {listed(files) or 'none'}"
        raise WrongUsageError(message) from error
    except LogAwayError as error:
        typer.echo(error, err=True)
        for line in error.lines:
            typer.echo(line)
        raise typer.Exit(AWAY) from None


def _remote(channel: "Channel", view: "View", place: "Place", output: Output) -> Iterator[str]:
    """Yield the end of a log of another machine; to follow, also new text each second.

    A follower retries while the log is away.
    """
    from sluice_ops.channel import ChannelAwayError  # noqa: PLC0415
    from sluice_ops.queries.logs import LogAwayError, read_log, read_log_after  # noqa: PLC0415

    part = read_log(channel, view, place, output.lines)
    if part.cut:
        typer.echo(f"Only the last lines of {place.name} fit into an answer.", err=True)
    yield part.text
    is_away = False
    while output.follow:
        time.sleep(FOLLOW_SECONDS)
        try:
            part = read_log_after(channel, view, place, part.position)
        except (LogAwayError, ChannelAwayError) as error:
            if not is_away:
                typer.echo(f"{error}. The command retries until Ctrl-C.", err=True)
            is_away = True
            continue
        is_away = False
        yield part.text


def _newest_driver(files: dict[str, Path], tier: str) -> str | None:
    """Return the newest driver of a tier among this machine's logs, for use without ZooKeeper."""
    pattern = re.compile(rf"[^/]+/driver-{re.escape(tier)}-(\d+)")
    numbers = {name: int(match[1]) for name in files if (match := pattern.fullmatch(name))}
    return max(numbers, key=lambda name: numbers[name], default=None)
