"""The commands that change where the pipeline runs. Each posts the steps of its runbook and tells how they go."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from sluice_ops.cli.exit_codes import WrongUsageError
from sluice_ops.cli.output import AsJson, print_json

if TYPE_CHECKING:
    from sluice_ops.model.change import ChangeSpec

app = typer.Typer()

Host = Annotated[str, typer.Argument(help="The host's name, as `sluice hosts` lists it.")]
Tier = Annotated[str, typer.Argument(help="The tier's name, as `sluice tiers` lists it.")]
OneTier = Annotated[
    str | None, typer.Argument(metavar="[TIER]", help="The tier's name; without it, all of them.")
]
Deadline = Annotated[
    float, typer.Option(help="Seconds until the change is given up and undone.", min=1, max=604_800)
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done; do nothing.")]
Workers = Annotated[int, typer.Argument(help="How many workers, each of one quantum.", min=1, max=1000)]

DEADLINE = 600.0
PLAN_SECONDS = 60.0
"""How long a controller has to plan what is not done."""


class Kind(StrEnum):
    """What `sluice plan` can plan."""

    CORDON = "cordon"
    DRAIN = "drain"
    RETURN = "return"
    REBOOT = "reboot"
    MIGRATE = "migrate"
    UPGRADE = "upgrade"
    REPARTITION = "repartition"
    SCALE = "scale"
    BURST = "burst"
    LEAVE = "leave"
    SHIFT = "shift"
    REPAIR = "repair"
    PAUSE = "pause"
    RESUME = "resume"
    WRITE_OFF = "write-off"
    START = "start"
    STOP = "stop"


_NEEDS: dict[Kind, tuple[str, ...]] = {
    Kind.CORDON: ("host",),
    Kind.DRAIN: ("host",),
    Kind.RETURN: ("host",),
    Kind.REBOOT: ("host",),
    Kind.MIGRATE: ("tier", "to"),
    Kind.UPGRADE: ("tier",),
    Kind.REPARTITION: ("tier", "partitions"),
    Kind.SCALE: ("tier", "k"),
    Kind.BURST: ("tier",),
    Kind.SHIFT: ("shift",),
    Kind.START: ("tier",),
    Kind.STOP: ("tier",),
}
_MAY_NAME: dict[Kind, tuple[str, ...]] = {
    Kind.REPAIR: ("tier",),
    Kind.PAUSE: ("tier",),
    Kind.RESUME: ("tier",),
    Kind.WRITE_OFF: ("host",),
    Kind.UPGRADE: ("release",),
    Kind.BURST: ("k",),
}


def spec_of(kind: Kind, words: list[str], **more: object) -> "ChangeSpec":
    """Make a change of what was typed; say what is missing or too much."""
    from pydantic import ValidationError  # noqa: PLC0415

    from sluice_ops.model.change import ChangeSpec  # noqa: PLC0415
    from sluice_ops.site.validation_errors import explain  # noqa: PLC0415

    needs, may = _NEEDS.get(kind, ()), _MAY_NAME.get(kind, ())
    if not len(needs) <= len(words) <= len(needs + may):
        usage = " ".join(
            (kind.value, *(word.upper() for word in needs), *(f"[{word.upper()}]" for word in may))
        )
        message = f"usage: {usage}"
        raise WrongUsageError(message)
    try:
        return ChangeSpec.model_validate(
            {"kind": kind.value, **dict(zip(needs + may, words, strict=False)), **more}
        )
    except ValidationError as error:
        message = f"{kind.value}: {explain(error, ChangeSpec)[0]}"
        raise WrongUsageError(message) from error


def _named(name: str | None) -> tuple[str, ...]:
    return () if name is None else (name,)


def _run(kind: Kind, *words: str, deadline: float, dry_run: bool, as_json: bool) -> None:
    from sluice_ops.cli.carry_out import carry_out  # noqa: PLC0415

    carry_out(spec_of(kind, list(words)), deadline=deadline, dry_run=dry_run, as_json=as_json)


@app.command(epilog="Example: sluice plan drain h2")
def plan(
    kind: Annotated[Kind, typer.Argument(help="The change.")],
    words: Annotated[
        list[str] | None, typer.Argument(help="What that command takes, such as a host or a tier.")
    ] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Show what a change would do, step by step, with its predicted time and gap. Nothing is moved."""
    if kind in {Kind.BURST, Kind.LEAVE}:  # they say what would be launched and terminated, too
        from sluice_ops.cli import burst as bursting  # noqa: PLC0415

        carry_out = bursting.burst if kind is Kind.BURST else bursting.leave
        carry_out(spec_of(kind, words or []), deadline=PLAN_SECONDS, dry_run=True, as_json=as_json)
        return
    _run(kind, *(words or []), deadline=PLAN_SECONDS, dry_run=True, as_json=as_json)


@app.command(epilog="Example: sluice cordon h2")
def cordon(
    host: Host, *, deadline: Deadline = DEADLINE, dry_run: DryRun = False, as_json: AsJson = False
) -> None:
    """Have nothing new placed on a host until it is returned; what runs there goes on."""
    _run(Kind.CORDON, host, deadline=deadline, dry_run=dry_run, as_json=as_json)


@app.command(epilog="Example: sluice drain h2 --deadline 300")
def drain(
    host: Host, *, deadline: Deadline = DEADLINE, dry_run: DryRun = False, as_json: AsJson = False
) -> None:
    """Move everything off a host while records flow; it takes nothing new until it is returned."""
    _run(Kind.DRAIN, host, deadline=deadline, dry_run=dry_run, as_json=as_json)


@app.command("return", epilog="Example: sluice return h2")
def return_(
    host: Host, *, deadline: Deadline = DEADLINE, dry_run: DryRun = False, as_json: AsJson = False
) -> None:
    """Let a host be used again, after a look at its health."""
    _run(Kind.RETURN, host, deadline=deadline, dry_run=dry_run, as_json=as_json)


@app.command(epilog="Example: sluice retire h4")
def retire(host: Host, *, dry_run: DryRun = False, as_json: AsJson = False) -> None:
    """Take a host off the channel for good: it was drained, or written off, and its agent is stopped."""
    from sluice_ops.cli.retire import retire as carry_out  # noqa: PLC0415
    from sluice_ops.model.ids import HostName  # noqa: PLC0415

    carry_out(HostName(host), dry_run=dry_run, as_json=as_json)


@app.command("write-off", epilog="Example: sluice write-off h2")
def write_off(
    host: Annotated[
        str | None, typer.Argument(help="The host's name; without it, all that the brake holds.")
    ] = None,
    *,
    deadline: Deadline = DEADLINE,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Say that a lost host will not come back: what was on it goes on elsewhere, though many were lost at once."""
    _run(Kind.WRITE_OFF, *_named(host), deadline=deadline, dry_run=dry_run, as_json=as_json)


@app.command(epilog="Example: sluice reboot h2")
def reboot(
    host: Host, *, deadline: Deadline = DEADLINE, dry_run: DryRun = False, as_json: AsJson = False
) -> None:
    """Drain a host, reboot it, wait for it, and return it."""
    _run(Kind.REBOOT, host, deadline=deadline, dry_run=dry_run, as_json=as_json)


@app.command(epilog="Example: sluice scale enrich 3 --for 2h")
def scale(  # noqa: PLR0913 - each is a choice of the caller
    tenant: Annotated[
        str, typer.Argument(metavar="TIER", help="The tier's name, as `sluice tiers` lists it, or `batch`.")
    ],
    k: Annotated[
        str,
        typer.Argument(
            help="How many workers, each of one quantum; or how much of the cluster, such as 50%."
        ),
    ],
    *,
    lasting: Annotated[
        str | None, typer.Option("--for", metavar="TIME", help="For so long: 30m, 2h, 1d.")
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Until then, on this machine's clock: 06:00 or 2026-11-22T06:00."),
    ] = None,
    minimum: Annotated[
        str | None, typer.Option(metavar="K", help="And never fewer, instead of the site file's minimum.")
    ] = None,
    maximum: Annotated[
        str | None, typer.Option(metavar="K", help="And never more, instead of the site file's maximum.")
    ] = None,
    layer: Annotated[
        str | None,
        typer.Option(
            metavar="LAYER",
            help="Whose word it is: autoscaler, below maintenance, below person, which it is if not said.",
        ),
    ] = None,
    deadline: Deadline = DEADLINE,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Give a tier k workers, or batch k slots; without --for and --until it stays so until somebody changes it."""
    from sluice_ops.cli.carry_out import carry_out  # noqa: PLC0415

    spec = spec_of(
        Kind.SCALE, [tenant, k], minimum=minimum, maximum=maximum, layer=layer, until=_ending(lasting, until)
    )
    carry_out(spec, deadline=deadline, dry_run=dry_run, as_json=as_json)


def _ending(lasting: str | None, until: str | None) -> float | None:
    """Return when a number's time is over; None when it has no end."""
    from datetime import UTC, datetime  # noqa: PLC0415

    from sluice_ops.operations.expiry import UntilError, ending  # noqa: PLC0415

    if lasting is not None and until is not None:
        message = "--for and --until both say when it ends: give one of them"
        raise WrongUsageError(message)
    said = until if lasting is None else lasting
    if said is None:
        return None
    try:
        return ending(said, datetime.now(UTC), None).timestamp()
    except UntilError as error:
        message = f"--{'until' if lasting is None else 'for'}: {error}"
        raise WrongUsageError(message) from error


@app.command(epilog="Example: sluice drift --json | jq '.drift[].why', or: sluice drift --repair")
def drift(
    *,
    repair: Annotated[
        bool, typer.Option("--repair", help="Move what has drifted, with as few moves as can be.")
    ] = False,
    deadline: Deadline = DEADLINE,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Show what is not where a plan would have it, and the fewest moves that mend it; with --repair, make them."""
    from sluice_ops.cli import drift as drifting  # noqa: PLC0415

    if repair:
        drifting.repair(deadline=deadline, dry_run=dry_run, as_json=as_json)
    else:
        drifting.show(as_json=as_json)


@app.command(epilog="Example: sluice migrate outbound zone:onprem")
def migrate(
    tier: Tier,
    to: Annotated[
        str,
        typer.Argument(
            help="A host's name, zone:NAME, rack:NAME, label:NAME, or `anywhere` to take a place back."
        ),
    ],
    *,
    deadline: Deadline = DEADLINE,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Move a tier to a host, a zone or a label; it stays there."""
    _run(Kind.MIGRATE, tier, to, deadline=deadline, dry_run=dry_run, as_json=as_json)


@app.command(epilog="Example: sluice upgrade enrich, or: sluice upgrade enrich --release r7-3f9a2c1b")
def upgrade(
    tier: Tier,
    *,
    release: Annotated[
        str | None, typer.Option(help="The release; without it, the one that was published last.")
    ] = None,
    deadline: Deadline = DEADLINE,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Hand a tier over to other code while records flow; it goes back by itself when it does not do as well as before."""
    words = (tier,) if release is None else (tier, release)
    _run(Kind.UPGRADE, *words, deadline=deadline, dry_run=dry_run, as_json=as_json)


@app.command(epilog="Example: sluice repartition by-user 8")
def repartition(
    tier: Tier,
    partitions: Annotated[
        int, typer.Argument(help="Over how many partitions its state is to be spread.", min=1)
    ],
    *,
    deadline: Deadline = DEADLINE,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Spread what a tier holds in Spark over more partitions, or fewer, while records flow; its keys are counted before and after."""
    _run(Kind.REPARTITION, tier, str(partitions), deadline=deadline, dry_run=dry_run, as_json=as_json)


@app.command(epilog="Example: sluice shift night")
def shift(
    name: Annotated[str, typer.Argument(help="A shift of the site file, such as night or day.")],
    *,
    deadline: Deadline = DEADLINE,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Change to a shift: slots go from tiers to batch jobs, or come back."""
    _run(Kind.SHIFT, name, deadline=deadline, dry_run=dry_run, as_json=as_json)


@app.command(epilog="Example: sluice pause outbound --deadline 60, or: sluice pause --worker slot-counts-3-1")
def pause(
    tier: OneTier = None,
    *,
    worker: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SLOT", help="A worker alone, by its slot as `sluice slots` lists it; once for each."
        ),
    ] = None,
    deadline: Deadline = DEADLINE,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Pause a tier, or the pipeline, nearest its end first; slots and sessions stay, records wait in the streams.

    With --worker, pause single workers of tiers without state: the others work on, until the tier is resumed or handed over.
    """
    from sluice_ops.cli.carry_out import carry_out  # noqa: PLC0415

    spec = spec_of(Kind.PAUSE, list(_named(tier))).model_copy(update={"workers": tuple(worker or ())})
    carry_out(spec, deadline=deadline, dry_run=dry_run, as_json=as_json)


@app.command(epilog="Example: sluice resume")
def resume(
    tier: OneTier = None, *, deadline: Deadline = DEADLINE, dry_run: DryRun = False, as_json: AsJson = False
) -> None:
    """Resume a paused tier, or the pipeline, where it stopped, and wake workers that were paused alone."""
    _run(Kind.RESUME, *_named(tier), deadline=deadline, dry_run=dry_run, as_json=as_json)


@app.command(epilog="Example: sluice burst enrich 2")
def burst(
    tier: Tier,
    k: Workers = 1,
    *,
    deadline: Deadline = DEADLINE,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Launch EC2 instances and give a tier k more workers on them."""
    from sluice_ops.cli.burst import burst as carry_out  # noqa: PLC0415

    carry_out(spec_of(Kind.BURST, [tier, str(k)]), deadline=deadline, dry_run=dry_run, as_json=as_json)


@app.command(epilog="Example: sluice leave")
def leave(*, deadline: Deadline = DEADLINE, dry_run: DryRun = False, as_json: AsJson = False) -> None:
    """Hand every tier back to the site's own hosts, then terminate the EC2 instances."""
    from sluice_ops.cli.burst import leave as carry_out  # noqa: PLC0415

    carry_out(spec_of(Kind.LEAVE, []), deadline=deadline, dry_run=dry_run, as_json=as_json)


@app.command(epilog="Example: sluice abort cli-drain-h2-20260101-101500")
def abort(
    change: Annotated[
        str | None, typer.Argument(help="The change; without it, the one that is under way.")
    ] = None,
    *,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Undo what a change has not finished, back to what ran before, and free the maintenance lock."""
    from sluice_ops.cli.abort import abort as carry_out  # noqa: PLC0415

    carry_out(change, dry_run=dry_run, as_json=as_json)


@app.command(epilog="Example: sluice start counts")
def start(tier: Tier, *, dry_run: DryRun = False, as_json: AsJson = False) -> None:
    """Have a tier run; one that was given up after failures is tried again. Its DAG in Airflow watches it while a run of it is there."""
    _want(tier, running=True, dry_run=dry_run, as_json=as_json)


@app.command(epilog="Example: sluice stop counts")
def stop(tier: Tier, *, dry_run: DryRun = False, as_json: AsJson = False) -> None:
    """Stop a tier after a commit, until somebody starts it again: the run of its DAG in Airflow ends with it."""
    _want(tier, running=False, dry_run=dry_run, as_json=as_json)


def _want(tier: str, *, running: bool, dry_run: bool, as_json: bool) -> None:
    from sluice_ops.channel.trail_queue import me  # noqa: PLC0415
    from sluice_ops.operations import requests  # noqa: PLC0415
    from sluice_ops.operations.connect import open_channel  # noqa: PLC0415

    with open_channel() as channel:
        known = channel.children("/tiers")
        if tier not in known:
            message = f"there is no tier {tier!r}; known tiers: {', '.join(known) or 'none is published yet'}"
            raise WrongUsageError(message)
        wanted = None if dry_run else requests.want(channel, tier, by=me(), running=running, again=running)
    if wanted is None:
        _run(Kind.START if running else Kind.STOP, tier, deadline=PLAN_SECONDS, dry_run=True, as_json=as_json)
        return
    if as_json:
        print_json(wanted)
    else:
        then = (
            f"; where no run of tier_{tier} is there in Airflow, trigger it: it alerts when the tier fails"
            if wanted.running
            else ""
        )
        typer.echo(
            f"{tier}: {'running' if wanted.running else 'stopped'} is wanted now; `sluice status` follows it{then}"
        )
