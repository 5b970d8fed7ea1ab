"""`sluice`: the command line. Entry point `sluice_ops.main:app`."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from sluice_ops.cli import changes, lists, serving
from sluice_ops.cli.exit_codes import CODES, Commands, WrongUsageError
from sluice_ops.cli.output import AsJson
from sluice_ops.local import commands

CHECKOUT = Path(__file__).resolve().parents[2]
GIVES_WAY = 10
"""How nice a replay is to what serves live records."""

app = typer.Typer(
    cls=Commands,
    name="sluice",
    help="Operate a live pipeline: see where it runs, move it, resize it, drain hosts, while records keep flowing.",
    epilog=CODES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _settings() -> None:
    """Find the installation: SLUICE_HOME and SLUICE_SITE, or what lies in the checkout."""
    os.environ.setdefault("SLUICE_HOME", str(CHECKOUT / ".sluice"))
    os.environ.setdefault("SLUICE_SITE", str(CHECKOUT / "site.yaml"))


@app.command(epilog="Example: watch -n1 sluice status")
def status(*, as_json: AsJson = False) -> None:
    """Show in one screen what runs where, how well, and what is being done."""
    from sluice_ops.cli.status import show  # noqa: PLC0415

    show(as_json=as_json)


@app.command(epilog="Example: sluice audit || echo 'records are lost'")
def audit(
    *,
    settle: Annotated[
        int | None, typer.Option(metavar="NUMBER", help="The losses up to this number are dealt with.", min=1)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Tell whether all that each tier was given has come out, and what has not."""
    from sluice_ops.cli.audit import show  # noqa: PLC0415

    show(settle, as_json=as_json)


@app.command(
    epilog="Example: sluice access || sluice access --apply, or: sluice access --postgres superuser.url"
)
def access(
    *,
    make: Annotated[
        bool, typer.Option("--make", help="Make a credential for each role that has none.")
    ] = False,
    apply: Annotated[
        bool, typer.Option("--apply", help="Give every node the access list that it is to have.")
    ] = False,
    forget: Annotated[
        str | None,
        typer.Option(
            "--forget", metavar="HOST", help="Take a host off the channel that has lost its own credential."
        ),
    ] = None,
    postgres: Annotated[
        str | None,
        typer.Option(
            "--postgres",
            metavar="FILE",
            help="Make PostgreSQL's roles; FILE holds the URL of a superuser, - is stdin.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Tell whether every node of the channel is changed by those only who should. Takes the admin's credential; --forget the operator's."""
    from sluice_ops.cli import access as lists_of_access  # noqa: PLC0415

    if postgres is not None:
        if make or apply or forget is not None:
            message = "--postgres goes alone"
            raise WrongUsageError(message)
        lists_of_access.make_postgres(postgres, as_json=as_json)
        return
    if make and apply:
        message = (
            "--make and --apply are two steps: in between, the credentials go to the machines that need them"
        )
        raise WrongUsageError(message)
    if forget is not None:
        if make or apply:
            message = "--forget goes alone"
            raise WrongUsageError(message)
        lists_of_access.forget(forget, as_json=as_json)
        return
    act = lists_of_access.make if make else lists_of_access.apply if apply else lists_of_access.show
    act(as_json=as_json)


@app.command(epilog="Example: sluice token h4.token --host h4 --for 1h")
def token(
    file: Annotated[Path, typer.Argument(help="Where it is written: a secret until the host is registered.")],
    *,
    host: Annotated[str, typer.Option(metavar="NAME", help="The host that may join with it, and no other.")],
    lasts: Annotated[
        str,
        typer.Option(
            "--for", metavar="TIME", help="How long it may be used, such as 30m or 2h, by ZooKeeper's clock."
        ),
    ] = "1h",
    as_json: AsJson = False,
) -> None:
    """Make a token with which one host joins: `sluice agent --host h4 --token-file h4.token` there. Takes the admin's credential.

    The first machine that uses it in time is that host; a copy is refused elsewhere. It is spent when the host is registered: a join that
    ends before is repeated on the same machine with the same token. A later token for the same host replaces an earlier one.
    """
    from sluice_ops.cli.access import make_token  # noqa: PLC0415

    make_token(file, host, lasts, as_json=as_json)


@app.command(epilog="Example: sluice feed --rate 500 --count 10000 --first 1")
def feed(
    rate: Annotated[float, typer.Option(help="Hits per second.", min=0.1)],
    count: Annotated[int | None, typer.Option(help="How many hits; without it, until Ctrl-C.", min=1)] = None,
    first: Annotated[
        int | None, typer.Option(help="The number of the first hit; ids are hit-<n>.", min=0)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Produce hits into the pipeline's input."""
    from sluice_ops.local.layout import layout  # noqa: PLC0415
    from sluice_ops.local.start.priority import SERVICES, in_group  # noqa: PLC0415

    words = [sys.executable, "-m", "hits.feed", "--rate", f"{rate:g}"]
    words += ["--count", str(count)] if count is not None else []
    words += ["--first", str(first)] if first is not None else []
    words += ["--json"] if as_json else []
    # beside the services: among the person's own commands it would be as late as these when the processors are busy
    words = list(in_group(layout(), SERVICES, tuple(words)))
    os.execvp(words[0], words)  # noqa: S606 - it becomes the feed, so that signals reach it


@app.command(
    epilog="Example: sluice replay entry --quarantine, or: sluice replay outbound --from 2026-11-21T22:00, or: sluice replay --resume 3"
)
def replay(  # noqa: PLR0913 — each is a choice of the caller
    tier: Annotated[str | None, typer.Argument(help="The tier that takes them.")] = None,
    *,
    quarantine: Annotated[
        bool, typer.Option("--quarantine", help="What it has set aside, instead of its inputs.")
    ] = False,
    begin: Annotated[
        str | None,
        typer.Option("--from", help="A time, or a place ([stream/]partition:offset); else all there is."),
    ] = None,
    end: Annotated[str | None, typer.Option("--to", help="Likewise; else up to now.")] = None,
    rate: Annotated[
        float | None, typer.Option(help="Records per second at most; 100 if not given.", min=0.1)
    ] = None,
    resume: Annotated[
        int | None, typer.Option(metavar="NUMBER", help="Go on with this replay.", min=1)
    ] = None,
    cancel: Annotated[
        int | None, typer.Option(metavar="NUMBER", help="End this replay for good.", min=1)
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be taken.")] = False,
    as_json: AsJson = False,
) -> None:
    """Take records through a tier again, beside the live ones; what was processed already is told by its name and dropped.

    It runs in this process, with the code that the tier runs, and goes slower or stands still where live records would take twice as long.
    Ctrl-C ends it; `--resume` goes on. Tiers with state, and those that deliver at most once, are refused.
    """
    from sluice_ops.local.layout import layout  # noqa: PLC0415
    from sluice_ops.local.start.priority import niced  # noqa: PLC0415

    words = [sys.executable, "-m", "sluice.replay"]
    words += [tier] if tier is not None else []
    words += ["--quarantine"] if quarantine else []
    for option, value in (
        ("--from", begin),
        ("--to", end),
        ("--rate", rate),
        ("--resume", resume),
        ("--cancel", cancel),
    ):
        words += [option, str(value)] if value is not None else []
    words += ["--dry-run"] if dry_run else []
    words += ["--json"] if as_json else []
    words = list(niced(layout(), tuple(words), GIVES_WAY))
    os.execvp(words[0], words)  # noqa: S606 - it becomes the replay, so that signals reach it


@app.command(epilog="Example: sluice skip entry --dry-run")
def skip(
    tier: Annotated[str, typer.Argument(help="The tier that stands still because records are gone.")],
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be skipped.")] = False,
    as_json: AsJson = False,
) -> None:
    """Have a tier go on where what it has not read is gone from its inputs, by retention or by somebody's hand.

    It stands still until this is asked for. `sluice audit` tells the records as lost, `sluice trail` who has skipped them.
    """
    words = [
        sys.executable,
        "-m",
        "sluice.commands.skip",
        tier,
        *["--dry-run"] * dry_run,
        *["--json"] * as_json,
    ]
    os.execvp(words[0], words)  # noqa: S606 - it becomes the other


@app.command(epilog="Example: sluice simulate --hosts 2300 --slots 18400")
def simulate(
    hosts: Annotated[int, typer.Option(help="How many hosts, each with an agent.")],
    slots: Annotated[int, typer.Option(help="How many slots in all, spread over tiers of 1,000 at most.")],
    *,
    as_json: AsJson = False,
) -> None:
    """Measure how far the control plane carries: real controllers on a ZooKeeper of their own, with simulated agents.

    It measures how long planning takes, how soon a lost host's slots are assigned elsewhere, how soon a standby controller takes over from
    one that is killed, and the memory, nodes and watches that all this holds. The agents do no work and share some sessions. It takes
    one to ten minutes and touches no running platform; measure on a machine that does nothing else. What was measured is in docs/scale.md.
    """
    from sluice_ops.local.simulation.command import simulate as measure  # noqa: PLC0415

    measure(hosts, slots, as_json=as_json)


for command in (
    commands.up,
    commands.down,
    commands.clean,
    commands.doctor,
    commands.endpoints,
    commands.logs,
):
    app.command()(command)
for part in (lists.app, changes.app, serving.app):
    app.add_typer(part)
