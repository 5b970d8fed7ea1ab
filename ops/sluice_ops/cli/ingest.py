"""`sluice ingest`: bring records from outside into a stream."""

from typing import Annotated

import typer

from sluice_ops.cli.become import become

app = typer.Typer()
ways = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
app.add_typer(ways, name="ingest", help="Bring records into a stream: from log files.")

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
) -> None:
    """Follow log files: each line becomes one record, once.

    Files are read from their beginning, and followed through renaming and copying with truncation.
    Let the patterns match the rotated names, too. After a restart, the source continues where Kafka
    has its last line. It runs until Ctrl-C or SIGTERM.
    """
    become("sluice.ingest.files", *_words(stream, name, key), "--", *patterns)


def _words(stream: str, name: str, key: str | None) -> list[str]:
    return [f"--stream={stream}", f"--name={name}", *([] if key is None else [f"--key={key}"])]
