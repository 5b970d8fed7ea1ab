"""`sluice`: the command line. Entry point `sluice_ops.main:app`."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from sluice_ops.cli import alert, batch, changes, ingest, lists, logs, projects, scaler, serving, top
from sluice_ops.cli.become import become
from sluice_ops.cli.errors import Commands, WrongUsageError
from sluice_ops.cli.output import AsJson
from sluice_ops.local import commands
from sluice_ops.model.exit_codes import CODES
from sluice_ops.site import project

REPLAY_NICE = 10
"""The nice value of a replay: processes that serve live records come first."""

app = typer.Typer(
    cls=Commands,
    name="sluice",
    help="Operate a live pipeline while records keep flowing: "
    "show where tiers run, move and resize tiers, drain hosts.",
    epilog=CODES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _settings(context: typer.Context) -> None:
    """Let every process that a command starts find the same site file and home."""
    if context.invoked_subcommand != "init":  # makes another project
        os.environ.update(project.environment())


@app.command(epilog="Example: watch -n1 sluice status")
def status(*, as_json: AsJson = False) -> None:
    """Show hosts, tiers, shares, changes and every problem."""
    from sluice_ops.cli.status import show  # noqa: PLC0415

    show(as_json=as_json)


@app.command(epilog="Example: sluice audit || echo 'records are lost'")
def audit(
    *,
    settle: Annotated[
        int | None,
        typer.Option(metavar="NUMBER", help="Mark the losses up to this number as settled.", min=1),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show whether tiers processed every record; list losses."""
    from sluice_ops.cli.audit import show  # noqa: PLC0415

    show(settle, as_json=as_json)


@app.command(
    epilog="Example: sluice access || sluice access --apply, or: sluice access --postgres superuser.url"
)
def access(
    *,
    make: Annotated[
        bool, typer.Option("--make", help="Create a credential for each role that has none.")
    ] = False,
    apply: Annotated[bool, typer.Option("--apply", help="Correct the access list of every node.")] = False,
    forget: Annotated[
        str | None,
        typer.Option(
            "--forget", metavar="HOST", help="Remove a host that lost its credential from the channel."
        ),
    ] = None,
    postgres: Annotated[
        str | None,
        typer.Option(
            "--postgres",
            metavar="FILE",
            help="Create the roles of PostgreSQL; FILE holds the URL of a superuser, - is stdin.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check the access list of every node of the channel.

    With options: make credentials, correct lists, forget a host, or make PostgreSQL's roles.

    Needs the admin's credential; --forget needs the operator's.
    """
    from sluice_ops.cli import access as lists_of_access  # noqa: PLC0415

    if postgres is not None:
        if make or apply or forget is not None:
            message = "--postgres cannot be combined with --make, --apply or --forget"
            raise WrongUsageError(message)
        lists_of_access.make_postgres(postgres, as_json=as_json)
        return
    if make and apply:
        message = "--make and --apply are two steps: copy the credentials to the machines in between"
        raise WrongUsageError(message)
    if forget is not None:
        if make or apply:
            message = "--forget cannot be combined with --make or --apply"
            raise WrongUsageError(message)
        lists_of_access.forget(forget, as_json=as_json)
        return
    act = lists_of_access.make if make else lists_of_access.apply if apply else lists_of_access.show
    act(as_json=as_json)


@app.command(epilog="Example: sluice token h4.token --host h4 --for 1h")
def token(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="File for the token. Keep it secret until the host is registered."
        ),
    ],
    *,
    host: Annotated[
        str,
        typer.Option(metavar="NAME", help="The host that may join; the token is of no use to other hosts."),
    ],
    lasts: Annotated[
        str,
        typer.Option(
            "--for",
            metavar="TIME",
            help="How long the token is valid by ZooKeeper's clock, such as 30m or 2h.",
        ),
    ] = "1h",
    as_json: AsJson = False,
) -> None:
    """Create a token that lets one new host join. Needs the admin's credential.

    On the new host run: `sluice agent --host h4 --token-file h4.token`. The first machine that uses
    the token is that host; on any other machine the token is refused. If a join is interrupted,
    repeat the join on the same machine with the same token. The registration of the host uses the
    token up. A new token for a host replaces the previous one.
    """
    from sluice_ops.cli.access import make_token  # noqa: PLC0415

    make_token(file, host, lasts, as_json=as_json)


@app.command(epilog="Example: sluice feed --rate 500 --count 10000 --first 1")
def feed(
    rate: Annotated[float, typer.Option(metavar="RATE", help="Records per second.", min=0.1)],
    count: Annotated[
        int | None,
        typer.Option(metavar="NUMBER", help="How many records. Default: until Ctrl-C.", min=1),
    ] = None,
    first: Annotated[
        int | None,
        typer.Option(
            metavar="NUMBER", help="Number of the first record, if the feed numbers its records.", min=0
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Send example records into the pipeline's input.

    The module `feed` of the pipeline makes them.
    """
    from sluice_ops.local.layout import current_layout  # noqa: PLC0415
    from sluice_ops.local.services.sluice import feed_modules  # noqa: PLC0415
    from sluice_ops.local.start.priority import SERVICES, in_group  # noqa: PLC0415
    from sluice_ops.operations.snapshot import the_site  # noqa: PLC0415

    project.use_code()
    modules = feed_modules(the_site())
    if not modules:
        message = f"the pipeline {the_site().pipeline!r} has no module `feed`; send records with a producer"
        raise WrongUsageError(message)
    words = [sys.executable, "-m", modules[0], "--rate", f"{rate:g}"]
    words += ["--count", str(count)] if count is not None else []
    words += ["--first", str(first)] if first is not None else []
    words += ["--json"] if as_json else []
    # in the services' group: in the group of a person's commands the feed would lag on a busy
    # machine
    words = list(in_group(current_layout(), SERVICES, tuple(words)))
    os.execvp(words[0], words)  # noqa: S606 - replaces this process, so signals reach the feed


@app.command(
    epilog="Example: sluice replay entry --quarantine, or: sluice replay outbound --from 2026-11-21T22:00, "
    "or: sluice replay --resume 3"
)
def replay(  # noqa: PLR0913 - one parameter for each option
    tier: Annotated[
        str | None, typer.Argument(metavar="TIER", help="The tier that processes the records again.")
    ] = None,
    *,
    quarantine: Annotated[
        bool, typer.Option("--quarantine", help="Reprocess the tier's quarantined records, not its inputs.")
    ] = False,
    begin: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="TIME|PLACE",
            help="A time, or a record's place such as hits/2:1700. Default: the oldest record.",
        ),
    ] = None,
    end: Annotated[
        str | None,
        typer.Option("--to", metavar="TIME|PLACE", help="A time or a place, as in --from. Default: now."),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(metavar="RATE", help="Most records per second. Default: 100.", min=0.1),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="A name for the replay; a replay with this name continues."),
    ] = None,
    resume: Annotated[int | None, typer.Option(metavar="NUMBER", help="Continue this replay.", min=1)] = None,
    cancel: Annotated[
        int | None, typer.Option(metavar="NUMBER", help="End this replay for good.", min=1)
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show which records would be reprocessed.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Reprocess records through a tier, beside the live records.

    Records that the tier has already processed are recognized by their origin and dropped. The
    replay runs in this process with the tier's current code. It slows down or waits while live
    records would take twice as long. Ctrl-C ends this process, and `--resume` continues the replay.
    Tiers with state and tiers that deliver at most once are refused.
    """
    from sluice_ops.local.layout import current_layout  # noqa: PLC0415
    from sluice_ops.local.start.priority import niced  # noqa: PLC0415

    words = [sys.executable, "-m", "sluice.replay"]
    words += [tier] if tier is not None else []
    words += ["--quarantine"] if quarantine else []
    for option, value in (
        ("--from", begin),
        ("--to", end),
        ("--rate", rate),
        ("--name", name),
        ("--resume", resume),
        ("--cancel", cancel),
    ):
        words += [option, str(value)] if value is not None else []
    words += ["--dry-run"] if dry_run else []
    words += ["--json"] if as_json else []
    words = list(niced(current_layout(), tuple(words), REPLAY_NICE))
    project.use_code()
    os.execvp(words[0], words)  # noqa: S606 - replaces this process, so signals reach the replay


@app.command(epilog="Example: sluice skip entry --dry-run")
def skip(
    tier: Annotated[
        str, typer.Argument(metavar="TIER", help="The tier that stopped because input records are gone.")
    ],
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show which offsets would be skipped.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Let a tier continue after records deleted unread.

    Retention or a person deleted them before the tier read them. The tier waits until you run this
    command. `sluice audit` reports the records as lost, and `sluice trail` shows who skipped them.
    """
    project.use_code()
    become("sluice.commands.skip", tier, *["--dry-run"] * dry_run, *["--json"] * as_json)


@app.command(epilog="Example: sluice simulate --hosts 2300 --slots 18400")
def simulate(
    hosts: Annotated[int, typer.Option(metavar="NUMBER", help="How many hosts, each with an agent.")],
    slots: Annotated[
        int, typer.Option(metavar="NUMBER", help="How many slots in all; a tier has at most 1,000.")
    ],
    *,
    as_json: AsJson = False,
) -> None:
    """Measure the control plane at scale, with simulated agents.

    Controllers and ZooKeeper are real processes of their own. The command measures the time to
    plan, the time until a lost host's slots are assigned to other hosts, the time until a standby
    controller replaces a killed leader, and the memory, nodes and watches in use. The simulated
    agents do no work and share sessions. A measurement takes one to ten minutes and does not touch
    a running platform. Use an idle machine. The page "Scale" of the documentation has results.
    """
    from sluice_ops.local.simulation.command import simulate as measure  # noqa: PLC0415

    measure(hosts, slots, as_json=as_json)


for command in (
    commands.up,
    commands.down,
    commands.clean,
    commands.doctor,
    commands.endpoints,
):
    app.command()(command)
for part in (
    projects.app,
    lists.app,
    changes.app,
    scaler.app,
    alert.app,
    batch.app,
    logs.app,
    top.app,
    ingest.app,
    serving.app,
):
    app.add_typer(part)
