"""`sluice ingest`: bring records from outside into a stream."""

from pathlib import Path
from typing import Annotated

import typer

from sluice_ops.cli.become import become, option_words
from sluice_ops.cli.errors import WrongUsageError
from sluice_ops.cli.output import AsJson, print_json

app = typer.Typer()
ways = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
app.add_typer(
    ways,
    name="ingest",
    help="Bring records into a stream: from log files, or over HTTP.",
    epilog="Example: sluice ingest files '/var/log/app/*.log*' --stream raw --name app-h1",
)

Stream = Annotated[
    str, typer.Option(metavar="STREAM", help="The stream from outside that gets the records, such as raw.")
]
Name = Annotated[
    str,
    typer.Option(
        metavar="NAME", help="The source's name. Its positions belong to it; one process at a time has it."
    ),
]
Key = Annotated[
    str | None,
    typer.Option(
        metavar="FIELD",
        help="The field of a JSON record whose value is the record's key. "
        "Records with one key stay in order.",
    ),
]
Metrics = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="Serve metrics for Prometheus there, such as 127.0.0.1:9464."),
]
TAKEN_OVER = "Exit code 4: another process has taken the name over."


@ways.command(
    epilog=f"Example: sluice ingest files '/var/log/app/*.log*' --stream raw --name app-h1. {TAKEN_OVER}"
)
def files(
    patterns: Annotated[
        list[str],
        typer.Argument(metavar="PATTERN", help="Paths of files, with *, ?, [ ] and **; quote them."),
    ],
    *,
    stream: Stream,
    name: Name,
    key: Key = None,
    metrics: Metrics = None,
) -> None:
    """Follow log files: each line becomes one record, once.

    Files are read from their beginning, and followed through renaming and copying with truncation.
    Let the patterns match the rotated names, too. After a restart, the source continues where Kafka
    has its last line. It runs until Ctrl-C or SIGTERM.
    """
    become("sluice.ingest.files", *option_words(_common(stream, name, key, metrics)), "--", *patterns)


@ways.command(
    epilog="Example: sluice ingest http --stream raw --name web --port 8080 --token-file tokens. "
    + TAKEN_OVER
)
def http(  # noqa: PLR0913 - one parameter for each option
    *,
    stream: Stream,
    name: Name,
    port: Annotated[int, typer.Option(metavar="PORT", help="The port for clients.", min=1, max=65535)],
    address: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS", help="The address for clients. Default: 127.0.0.1. Others need --token-file."
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The tokens of clients, one in each line; a private file."),
    ] = None,
    key: Key = None,
    metrics: Metrics = None,
) -> None:
    """Take records over HTTP: POST /records, as JSON or NDJSON.

    The answer comes once Kafka has the records. A request with an Idempotency-Key may be repeated
    for a day: its records are written once. While the pipeline is throttled, the answer is 429 with
    Retry-After. GET /health tells whether Kafka takes records. The server runs until Ctrl-C or
    SIGTERM, and then answers the open requests.
    """
    options = {"--port": port, "--address": address, "--token-file": token_file}
    become("sluice.ingest.http", *option_words(_common(stream, name, key, metrics) | options))


@ways.command(epilog="Example: sluice ingest forget app-h1 --stream raw")
def forget(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The source that shall not run any more.")],
    *,
    stream: Stream,
    as_json: AsJson = False,
) -> None:
    """Tell the platform that a lost source shall not run any more, which ends its alerts.

    A source that is stopped by SIGTERM or Ctrl-C needs no such command. What the source remembers
    in Kafka stays: a source that starts under this name continues.
    """
    from sluice_ops.model import paths  # noqa: PLC0415
    from sluice_ops.model.source import source_id  # noqa: PLC0415
    from sluice_ops.operations.connect import open_channel  # noqa: PLC0415

    identity = source_id(name, stream)
    with open_channel() as channel:
        if not channel.exists(paths.source(identity)):
            sources = ", ".join(channel.children(paths.SOURCES)) or "none"
            message = f"there is no source {identity}; sources (NAME@STREAM): {sources}"
            raise WrongUsageError(message)
        if channel.exists(paths.source_live(identity)):
            message = f"source {identity} runs: stop its process instead, with SIGTERM or Ctrl-C"
            raise WrongUsageError(message)
        channel.delete(paths.source(identity))
    if as_json:
        print_json({"forgotten": identity})
    else:
        typer.echo(f"{identity} is forgotten. A source that starts under this name continues its work.")


def _common(stream: str, name: str, key: str | None, metrics: str | None) -> dict[str, object]:
    return {"--stream": stream, "--name": name, "--key": key, "--metrics": metrics}
