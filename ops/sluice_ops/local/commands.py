"""The commands that bring the embedded platform up and down and look at it: up, down, clean, doctor, endpoints, logs."""

import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sluice_ops.cli.exit_codes import INTERRUPTED, WrongUsageError
from sluice_ops.cli.output import AsJson, print_json, print_table

if TYPE_CHECKING:
    from sluice_ops.local.lifecycle import Started
    from sluice_ops.local.start.steps import Timing

BAR = 30
"""Characters of the longest bar in the table of where the time went."""


def _told(timing: "Timing") -> str:
    return f"{timing.ended:6.1f} s  {timing.name:<18} {timing.said}  ({timing.seconds:.1f} s)"


def _fail(error: Exception) -> typer.Exit:
    typer.echo(f"sluice: {error}", err=True)
    return typer.Exit(1)


def up(as_json: AsJson = False) -> None:
    """Start everything, side by side, and return when records flow. Example: sluice up."""
    from sluice_ops.local.layout import layout  # noqa: PLC0415
    from sluice_ops.local.lifecycle import up as bring_up  # noqa: PLC0415
    from sluice_ops.site.installation import PlatformError  # noqa: PLC0415
    from sluice_ops.site.site_file import SiteError  # noqa: PLC0415

    try:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        where = layout()
        # how it goes is for whoever waits, also where the answer is for a script
        typer.echo(
            f"Sluice starts in {where.home}; its ports are above {where.ports.zookeeper - 1}.", err=as_json
        )
        started = bring_up(where, lambda timing: typer.echo(_told(timing), err=as_json))
    except (PlatformError, SiteError) as error:
        raise _fail(error) from None
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        typer.echo("\nInterrupted: stopping what has started.", err=True)
        down(as_json=as_json)
        raise typer.Exit(INTERRUPTED) from None
    if as_json:
        steps = [vars(timing) for timing in started.timings]
        print_json(
            {
                "home": str(where.home),
                "seconds": started.seconds,
                "first_record_seconds": started.first_record,
                "steps": steps,
            }
        )
        return
    _report(started)
    keys = where.secrets()
    typer.echo(f"\nAirflow   http://127.0.0.1:{where.ports.airflow}   user admin   password {keys.airflow}")
    typer.echo("`sluice endpoints` prints those of its users `operator` and `viewer`, too.")
    typer.echo("Look on with `sluice status`; stop with `make down`.")


def _report(started: "Started") -> None:
    typer.echo("\nWhere the time went (each bar from its start to its end):")
    scale = BAR / max(started.seconds, 1.0)
    for timing in sorted(started.timings, key=lambda timing: (timing.began, timing.ended)):
        bar = " " * int(timing.began * scale) + "#" * max(1, round(timing.seconds * scale))
        typer.echo(f"  {timing.name:<18} {timing.seconds:6.1f} s  {bar}")
    first = started.first_record
    flowing = "" if first is None else f"; the first record was delivered after {first:.1f} s"
    typer.echo(f"Everything is up after {started.seconds:.1f} s{flowing}.")


def down(as_json: AsJson = False) -> None:
    """Stop everything; the data stays. Example: sluice down."""
    from sluice_ops.local.layout import layout  # noqa: PLC0415
    from sluice_ops.local.lifecycle import down as bring_down  # noqa: PLC0415
    from sluice_ops.site.installation import PlatformError  # noqa: PLC0415

    begun = time.monotonic()
    try:
        stopped = bring_down(layout())
    except PlatformError as error:
        raise _fail(error) from None
    seconds = time.monotonic() - begun
    if as_json:
        print_json({"stopped": stopped, "seconds": seconds})
    elif stopped:
        typer.echo(f"Stopped {len(stopped)} services in {seconds:.1f} s; the data stays.")
    else:
        typer.echo("Nothing was running.")


def clean(as_json: AsJson = False) -> None:
    """Stop everything and remove all data. Example: sluice clean."""
    from sluice_ops.local.layout import layout  # noqa: PLC0415
    from sluice_ops.local.lifecycle import clean as remove  # noqa: PLC0415
    from sluice_ops.site.installation import PlatformError  # noqa: PLC0415

    try:
        where = layout()
        removed = remove(where)
    except PlatformError as error:
        raise _fail(error) from None
    if as_json:
        print_json({"removed": removed, "home": str(where.home)})
    else:
        typer.echo(f"Removed {where.home}." if removed else f"There is no {where.home}.")


def doctor(
    host: Annotated[
        str | None, typer.Option(metavar="NAME", help="Look at this machine as that host of the site file.")
    ] = None,
    memory: Annotated[
        bool, typer.Option("--memory", help="Show how much memory each service takes (PSS).")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Look at Java, disk, memory, ports, the site file and every service, and say what to do. Example: sluice doctor --json.

    With --host, on a real host: what its agent needs, and whether the services that the endpoints file names can be reached from it.
    """
    from sluice_ops.doctor import host_checks  # noqa: PLC0415
    from sluice_ops.doctor.finding import Verdict  # noqa: PLC0415
    from sluice_ops.local import doctor as examination  # noqa: PLC0415
    from sluice_ops.local.layout import layout  # noqa: PLC0415
    from sluice_ops.local.memory import by_service  # noqa: PLC0415
    from sluice_ops.site.installation import PlatformError  # noqa: PLC0415

    if host is not None and memory:
        message = "--memory is about the embedded platform's services: leave out --host"
        raise WrongUsageError(message)
    try:
        where = layout()
        findings = (
            examination.examine(where) if host is None else host_checks.examine(host, where.site, where.home)
        )
    except PlatformError as error:
        raise _fail(error) from None
    sizes = by_service(where) if memory else {}
    bad = [finding for finding in findings if finding.verdict is Verdict.BAD]
    if as_json:
        answer: dict[str, Any] = {"ok": not bad, "findings": [vars(finding) for finding in findings]}
        print_json(answer | ({"memory": sizes} if memory else {}))
    else:
        rows = [
            (finding.verdict.value, finding.thing, finding.sentence, finding.advice) for finding in findings
        ]
        print_table(("", "what", "how it is", "what to do"), rows, "Nothing was looked at.")
        if memory:
            print_table(
                ("service", "MiB"), [*sizes.items(), ("all", sum(sizes.values()))], "Nothing is running."
            )
    if bad:
        raise typer.Exit(1)


def endpoints(as_json: AsJson = False) -> None:
    """Print where every service is. Example: sluice endpoints --json."""
    from sluice_ops.model.access import Role  # noqa: PLC0415
    from sluice_ops.site.endpoints import EndpointsError, load  # noqa: PLC0415

    found = load()
    places = found.model_dump(mode="json", exclude={"access", "spark_secret"})
    with suppress(EndpointsError):  # the operator's password is on another machine
        places["postgres"] = found.postgres_as(Role.OPERATOR)
    users = _airflow_users(found.home)
    if as_json:
        print_json({**places, "airflow": {**places["airflow"], "users": users}})
        return
    rows = [(name, value) for name, value in places.items() if name != "airflow"]
    known = ", ".join(f"user {user}, password {password}" for user, password in users.items())
    print_table(
        ("what", "where"), [*rows, ("airflow", f"{found.airflow.url}{f' ({known})' if known else ''}")], ""
    )


def _airflow_users(home: Path) -> dict[str, str]:
    """Return Airflow's users and their passwords, where the embedded platform of this home has made them."""
    from sluice_ops.local.layout import layout  # noqa: PLC0415
    from sluice_ops.local.services.airflow import passwords  # noqa: PLC0415

    where = layout()
    return passwords(where) if where.home == home and (home / "secrets.json").exists() else {}


def logs(
    service: Annotated[
        str | None,
        typer.Argument(
            help="A service's name, or a unit's such as h1/driver-entry-1; without it: which there are."
        ),
    ] = None,
    lines: Annotated[int, typer.Option("--lines", "-n", help="How many of its last lines.", min=0)] = 40,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what it writes.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print the end of a service's log. Example: sluice logs controller -n 100 -f."""
    from sluice_ops.local.layout import layout  # noqa: PLC0415
    from sluice_ops.local.logbook import find, tail  # noqa: PLC0415

    if as_json and follow:
        message = "--json prints one answer and --follow never ends: choose one of them"
        raise WrongUsageError(message)
    found = find(layout())
    if service is None:
        if as_json:
            print_json({"logs": list(found)})
        else:
            typer.echo("\n".join(found) or "There are no logs yet.")
        return
    if service not in found:
        message = f"there is no log of {service!r}; there are {', '.join(found) or 'none'}"
        raise WrongUsageError(message)
    said = tail(found[service], lines, follow=follow)
    if as_json:
        print_json({"log": service, "lines": [line.rstrip("\n") for line in said]})
        return
    with suppress(KeyboardInterrupt):
        for line in said:
            sys.stdout.write(line)
            sys.stdout.flush()
