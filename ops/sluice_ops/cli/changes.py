"""The commands that change the pipeline.

Each kind of change is a command; its fields are the arguments.

A command posts the steps of its change and follows them.
"""

import inspect
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from sluice_ops.cli.become import become
from sluice_ops.cli.errors import WrongUsageError
from sluice_ops.cli.output import AsJson, print_json
from sluice_ops.model.change import DEADLINE_SECONDS, LONGEST_DEADLINE_SECONDS, START
from sluice_ops.planning.changes.kind import Field, Input, Kind, Option
from sluice_ops.planning.changes.kinds import KINDS
from sluice_ops.site import project

if TYPE_CHECKING:
    from sluice_ops.channel.client import Channel
    from sluice_ops.model.change import ChangeSpec
    from sluice_ops.model.ids import TierName
    from sluice_ops.model.incarnation import TierWanted

app = typer.Typer()


def _deadline_of(what: str) -> Any:
    """Return the option for the time after which something is aborted."""
    return typer.Option(
        metavar="SECONDS",
        help=f"Seconds until {what} is aborted and undone.",
        min=1,
        max=LONGEST_DEADLINE_SECONDS,
    )


Deadline = Annotated[float, _deadline_of("the change")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the effect; change nothing.")]

PLAN_SECONDS = 60.0
"""The time that a controller has to plan a dry run."""

_OFFERED = {name: kind for name, kind in KINDS.items() if not kind.own and (kind.command or kind.runbook)}
# mypy accepts an enum of literal members only; this one has a member for each kind.
_PlannedKind = StrEnum("_PlannedKind", {name: name for name in _OFFERED})  # type: ignore[misc]


def spec_of(kind: Kind, words: list[str], **more: object) -> "ChangeSpec":
    """Make a change from the typed words; WrongUsageError names the missing or superfluous word."""
    from pydantic import ValidationError  # noqa: PLC0415

    from sluice_ops.model.change import ChangeSpec  # noqa: PLC0415
    from sluice_ops.site.validation_errors import explain  # noqa: PLC0415

    fields = [field for field in kind.fields if not field.option or field.input is Input.RELEASE]
    needed = sum(field.required for field in fields)
    if not needed <= len(words) <= len(fields):
        names = (field.name.upper() if field.required else f"[{field.name.upper()}]" for field in fields)
        message = f"usage: {' '.join((kind.name, *names))}"
        raise WrongUsageError(message)
    typed = dict(zip((field.name for field in fields), words, strict=False))
    try:
        return ChangeSpec.model_validate({"kind": kind.name, **typed, **more})
    except ValidationError as error:
        message = f"{kind.name}: {explain(error, ChangeSpec)[0]}"
        raise WrongUsageError(message) from error


def _carry_out(kind: Kind, spec: "ChangeSpec", *, deadline: float, dry_run: bool, as_json: bool) -> None:
    if kind.launches or kind.empties_burst_hosts:
        from sluice_ops.cli import burst  # noqa: PLC0415

        carry_out = burst.burst if kind.launches else burst.leave
    else:
        from sluice_ops.cli.carry_out import carry_out  # noqa: PLC0415
    carry_out(spec, deadline=deadline, dry_run=dry_run, as_json=as_json)


@app.command(epilog="Example: sluice plan drain h2")
def plan(
    kind: Annotated[_PlannedKind, typer.Argument(metavar="KIND", help="The change.")],
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="WORDS", help="The arguments of this change, such as a host or a tier."),
    ] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Show a change's effect, and its predicted time and gap. Nothing is changed."""
    spec = spec_of(KINDS[kind], words or [])
    _carry_out(KINDS[kind], spec, deadline=PLAN_SECONDS, dry_run=True, as_json=as_json)


def _command(kind: Kind) -> Callable[..., None]:
    """Make the function of a kind's command: typer reads its signature."""

    def carry_out(*, dry_run: bool, as_json: bool, deadline: float = PLAN_SECONDS, **typed: Any) -> None:
        values = {name: value for name, value in typed.items() if value is not None}
        if kind.planned_only:
            _start_or_stop(kind, **values, dry_run=dry_run, as_json=as_json)
            return
        if any(field.input is Input.TIME for field in kind.fields):
            values["until"] = _ending(values.pop("lasting", None), values.pop("until", None))
        words = [
            str(values.pop(field.name)) for field in kind.fields if not field.option and field.name in values
        ]
        spec = spec_of(kind, words, **values)
        _carry_out(kind, spec, deadline=deadline, dry_run=dry_run, as_json=as_json)

    parameters = [parameter for field in kind.fields for parameter in _parameters(field)]
    parameters += [_option(option) for option in kind.options]
    if not kind.planned_only:
        parameters.append(_parameter("deadline", Deadline, DEADLINE_SECONDS))
    parameters += [_parameter("dry_run", DryRun, default=False), _parameter("as_json", AsJson, default=False)]
    carry_out.__doc__ = kind.summary
    carry_out.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    cast("Any", carry_out).__signature__ = inspect.Signature(parameters)
    return carry_out


def _parameters(field: Field) -> list[inspect.Parameter]:
    """Return a field's parameters on the command line; a time has two, of which one may be
    given.
    """
    if field.input is Input.TIME:
        lasting = typer.Option("--for", metavar="TIME", help="Duration, such as 30m, 2h or 1d.")
        until = typer.Option(
            "--until", metavar="TIME", help="End on this machine's clock, such as 06:00 or 2026-11-22T06:00."
        )
        return [
            _parameter("lasting", Annotated[str | None, lasting], None),
            _parameter("until", Annotated[str | None, until], None),
        ]
    if field.input is Input.WORKERS:
        text = f"{field.help} Repeat the option for each worker."
        worker = typer.Option("--worker", metavar="SLOT", help=text)
        return [_parameter(field.name, Annotated[list[str] | None, worker], None)]
    type_ = int if field.input is Input.COUNT else str
    if field.option:
        metavar = "K" if field.input is Input.AMOUNT else field.name.upper()
        option = typer.Option(f"--{field.name}", metavar=metavar, help=field.help)
        return [_parameter(field.name, Annotated[type_ | None, option], None)]
    # no bounds here: each kind of change refuses a wrong number with its reason and the next step
    argument = typer.Argument(metavar=field.name.upper(), help=field.help)
    if field.required:
        return [_parameter(field.name, Annotated[type_, argument])]
    default = field.default
    return [_parameter(field.name, Annotated[type_ if default else type_ | None, argument], default)]


def _option(option: Option) -> inspect.Parameter:
    if option.metavar is None:
        flag = typer.Option(option.flag, help=option.help)
        return _parameter(option.name, Annotated[bool, flag], default=False)
    value = typer.Option(option.flag, metavar=option.metavar, help=option.help)
    return _parameter(option.name, Annotated[str | None, value], None)


def _parameter(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def _ending(lasting: str | None, until: str | None) -> float | None:
    """Return the end of a number's time as epoch seconds; None if it has no end."""
    from datetime import UTC, datetime  # noqa: PLC0415

    from sluice_ops.operations.expiry import ExpiryError, ending  # noqa: PLC0415

    if lasting is not None and until is not None:
        message = "--for and --until exclude each other: give one of them"
        raise WrongUsageError(message)
    typed = until if lasting is None else lasting
    if typed is None:
        return None
    try:
        return ending(typed, datetime.now(UTC), None).timestamp()
    except ExpiryError as error:
        message = f"--{'until' if lasting is None else 'for'}: {error}"
        raise WrongUsageError(message) from error


def _running(channel: "Channel", tier: "TierName") -> "TierWanted | None":
    """Return the request by which a tier runs now; None if the tier does not run."""
    from sluice_ops.model import paths  # noqa: PLC0415
    from sluice_ops.model.incarnation import TierWanted  # noqa: PLC0415
    from sluice_ops.model.status import ControllerStatus, TierState  # noqa: PLC0415

    wanted = channel.read(paths.wanted(tier), TierWanted)
    status = channel.read(paths.CONTROLLER_STATUS, ControllerStatus)
    if wanted is None or status is None or not wanted.value.running:
        return None
    line = status.value.tiers.get(tier)
    return wanted.value if line is not None and line.state is TierState.RUNNING else None


def _start_or_stop(  # noqa: PLR0913 - one parameter for each option
    kind: Kind, tier: str, *, savepoint: str | None = None, yes: bool = False, dry_run: bool, as_json: bool
) -> None:
    """Request the start or stop of a tier in ZooKeeper; the controller starts or stops the tier."""
    if savepoint is not None:
        project.use_code()
        options = ["--yes"] * yes + ["--dry-run"] * dry_run + ["--json"] * as_json
        become("sluice.commands.savepoint", "start", tier, savepoint, *options)
    if yes:
        message = "--yes needs --from"
        raise WrongUsageError(message)
    from sluice_ops.channel.trail_queue import cli_user  # noqa: PLC0415
    from sluice_ops.model.ids import TierName  # noqa: PLC0415
    from sluice_ops.operations import requests  # noqa: PLC0415
    from sluice_ops.operations.connect import open_channel  # noqa: PLC0415

    running = kind.name == START
    with open_channel() as channel:
        known = channel.children("/tiers")
        if tier not in known:
            message = f"there is no tier {tier!r}; known tiers: {', '.join(known) or 'none is published yet'}"
            raise WrongUsageError(message)
        if running and not dry_run and (already := _running(channel, TierName(tier))) is not None:
            if as_json:
                print_json(already)
            else:
                typer.echo(f"{tier} runs already; nothing was requested.")
            return
        wanted = (
            None if dry_run else requests.want(channel, tier, by=cli_user(), running=running, again=running)
        )
    if wanted is None:
        spec = spec_of(kind, [tier])
        _carry_out(kind, spec, deadline=PLAN_SECONDS, dry_run=True, as_json=as_json)
        return
    if as_json:
        print_json(wanted)
    else:
        alerts = (
            f" If no run of the DAG tier_{tier} is active in Airflow, trigger one: "
            "it alerts when the tier fails."
            if wanted.running
            else ""
        )
        typer.echo(
            f"{tier}: {'start' if wanted.running else 'stop'} requested. "
            f"`sluice status` shows its state.{alerts}"
        )


for _kind in _OFFERED.values():
    if _kind.command:
        app.command(_kind.name, epilog=f"Example: {_kind.example}")(_command(_kind))


@app.command(
    epilog="Example: sluice savepoint by-user before-fix, or: sluice savepoint by-user before-fix --remove"
)
def savepoint(
    tier: Annotated[str, typer.Argument(metavar="TIER", help="The tier with state, running or stopped.")],
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="The savepoint's name. Default: the date and time, in UTC."),
    ] = None,
    *,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the savepoint instead.")] = False,
    as_json: AsJson = False,
) -> None:
    """Keep the state of a tier under a name.

    The tier runs on. `sluice start --from` goes back to the state later, also with another release.
    Run this command where the tier's checkpoints are, as the user of the drivers.
    """
    if remove and name is None:
        message = "--remove needs the savepoint's name; see `sluice savepoints`"
        raise WrongUsageError(message)
    project.use_code()
    words = [tier] if name is None else [tier, name]
    action = "remove" if remove else "take"
    become("sluice.commands.savepoint", action, *words, *["--json"] * as_json)


@app.command(epilog="Example: sluice savepoints --json | jq -r '.[] | select(.tier == \"by-user\").name'")
def savepoints(*, as_json: AsJson = False) -> None:
    """List the savepoints of all tiers with state."""
    project.use_code()
    become("sluice.commands.savepoint", "list", *["--json"] * as_json)


@app.command(epilog="Example: sluice drift --json | jq '.drift[].why', or: sluice drift --repair")
def drift(
    *,
    repair: Annotated[bool, typer.Option("--repair", help="Repair the drift with the fewest moves.")] = False,
    deadline: Deadline = DEADLINE_SECONDS,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Show where placement differs from the plan.

    The fewest moves that repair the drift are shown, too.
    """
    from sluice_ops.cli import drift as drifting  # noqa: PLC0415

    if repair:
        drifting.repair(deadline=deadline, dry_run=dry_run, as_json=as_json)
    else:
        drifting.show(as_json=as_json)


@app.command(epilog="Example: sluice rolling-reboot rack:r1 --at-once 2 --dry-run")
def rolling_reboot(  # noqa: PLR0913 - one parameter for each option
    place: Annotated[
        str,
        typer.Argument(
            metavar="PLACE", help="rack:r1, zone:z, label:l, or hosts; several with commas, such as h1,h2."
        ),
    ],
    *,
    at_once: Annotated[
        int, typer.Option("--at-once", metavar="N", help="How many hosts reboot together.", min=1)
    ] = 1,
    only_needed: Annotated[
        bool, typer.Option("--only-needed", help="Only hosts with an update that needs a reboot.")
    ] = False,
    deadline: Annotated[float, _deadline_of("a batch")] = DEADLINE_SECONDS,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Reboot hosts in batches while records flow.

    Each batch is drained, rebooted, checked and returned before the next begins. No batch begins
    outside `reboot_window` of the site file, while an alert is open, or without room for its tiers.
    Run the command again to continue one that stopped.
    """
    from sluice_ops.cli.rolling import roll  # noqa: PLC0415

    roll(place, at_once, only_needed=only_needed, deadline=deadline, dry_run=dry_run, as_json=as_json)


@app.command(epilog="Example: sluice upgrade-pipeline --canary counts --dry-run")
def upgrade_pipeline(
    *,
    release: Annotated[
        str | None,
        typer.Option(
            "--release", metavar="RELEASE", help="The release, such as r7-3f9a2c1b. Default: the newest."
        ),
    ] = None,
    canary: Annotated[
        str | None, typer.Option("--canary", metavar="TIER", help="The tier that is upgraded first.")
    ] = None,
    deadline: Annotated[float, _deadline_of("the upgrade of a tier")] = DEADLINE_SECONDS,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Upgrade every tier to a release, one after the other.

    Each tier has its trial. If one fails, the tiers that were upgraded go back in reverse order.
    Run the command again to continue one that was interrupted.
    """
    from sluice_ops.cli.upgrade_pipeline import upgrade as carry_out  # noqa: PLC0415

    carry_out(release, canary, deadline=deadline, dry_run=dry_run, as_json=as_json)


@app.command(epilog="Example: sluice drain-to-empty --deadline 600 --json > receipt.json")
def drain_to_empty(
    *,
    deadline: Annotated[float, _deadline_of("the drain")] = DEADLINE_SECONDS,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Pause every tier with nothing in flight.

    The tiers that read from outside are paused first. Each other tier is paused once it has
    processed everything. The receipt has the numbers of each tier and stream. If a tier is not
    empty in time, all are resumed. Afterwards, `sluice resume` lets records flow again.
    """
    from sluice_ops.cli.drain_to_empty import drain as carry_out  # noqa: PLC0415

    carry_out(deadline=deadline, dry_run=dry_run, as_json=as_json)


@app.command(epilog="Example: sluice reap --dry-run")
def reap(*, dry_run: DryRun = False, as_json: AsJson = False) -> None:
    """Terminate orphaned EC2 instances.

    The hosts of ended instances are removed, too. Nobody owns an instance without a tier whose
    burst was aborted, or that has run for 30 minutes without an agent or without a known burst.
    Instances of other installations are never touched.
    """
    from sluice_ops.cli.reap import reap as carry_out  # noqa: PLC0415

    carry_out(dry_run=dry_run, as_json=as_json)


@app.command(epilog="Example: sluice approve cli-pause-20260101-101500-123")
def approve(
    change: Annotated[
        str | None,
        typer.Argument(metavar="CHANGE", help="The change. Default: list the changes that wait."),
    ] = None,
    *,
    refuse: Annotated[bool, typer.Option("--refuse", help="Refuse the change instead.")] = False,
    why: Annotated[
        str, typer.Option("--why", metavar="TEXT", help="The reason, for the person who asked.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Approve or refuse a change that waits for another person.

    The site file says which changes wait. The person who asked cannot approve.
    """
    from sluice_ops.cli.approve import approve as carry_out  # noqa: PLC0415

    carry_out(change, refuse=refuse, why=why, as_json=as_json)


@app.command(epilog="Example: sluice abort cli-drain-h2-20260101-101500-123")
def abort(
    change: Annotated[
        str | None, typer.Argument(metavar="CHANGE", help="The change. Default: the change in progress.")
    ] = None,
    *,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Abort a change: every tier continues as before it.

    The maintenance lock is released.
    """
    from sluice_ops.cli.abort import abort as carry_out  # noqa: PLC0415

    carry_out(change, dry_run=dry_run, as_json=as_json)
