"""The commands of the embedded platform: up, down, clean, doctor, endpoints, logs."""

import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sluice_ops.cli.errors import WrongUsageError
from sluice_ops.cli.output import AsJson, print_json, print_table
from sluice_ops.model.exit_codes import INTERRUPTED
from sluice_ops.model.kafka_access import User
from sluice_ops.site import project

if TYPE_CHECKING:
    from sluice_ops.doctor.finding import Finding
    from sluice_ops.local.lifecycle import Started
    from sluice_ops.local.start.steps import Timing
    from sluice_ops.site.endpoints import Endpoints

BAR = 30
"""Characters of the longest bar in the table of times."""


def _line(timing: "Timing") -> str:
    return f"{timing.ended:6.1f} s  {timing.name:<18} {timing.said}  ({timing.seconds:.1f} s)"


def _failed(error: Exception) -> typer.Exit:
    typer.echo(f"sluice: {error}", err=True)
    return typer.Exit(1)


def up(as_json: AsJson = False) -> None:
    """Start all services, and return when records flow.

    Example: sluice up
    """
    from sluice_ops.local.layout import current_layout  # noqa: PLC0415
    from sluice_ops.local.lifecycle import up as bring_up  # noqa: PLC0415
    from sluice_ops.local.machines import cpu_share  # noqa: PLC0415
    from sluice_ops.local.memory import processors  # noqa: PLC0415
    from sluice_ops.site import java  # noqa: PLC0415
    from sluice_ops.site.installation import PlatformError  # noqa: PLC0415
    from sluice_ops.site.site_file import SiteError  # noqa: PLC0415
    from sluice_ops.site.site_file import load as load_site  # noqa: PLC0415

    project.use_code()
    try:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        layout = current_layout()
        site = load_site(layout.site)
        java.check_own()
        # with --json, progress goes to stderr: stdout has the JSON only
        typer.echo(
            f"Sluice starts in {layout.home}; its ports begin at {layout.ports.zookeeper}.", err=as_json
        )
        started = bring_up(layout, lambda timing: typer.echo(_line(timing), err=as_json))
    except (PlatformError, SiteError, java.JavaError) as error:
        raise _failed(error) from None
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        typer.echo("\nInterrupted: stopping the services that have started.", err=True)
        down(as_json=as_json)
        raise typer.Exit(INTERRUPTED) from None
    if as_json:
        steps = [vars(timing) for timing in started.timings]
        print_json(
            {
                "home": str(layout.home),
                "seconds": started.seconds,
                "first_record_seconds": started.first_record,
                "steps": steps,
            }
        )
        return
    _report(started)
    keys = layout.secrets()
    typer.echo(f"\nAirflow   http://127.0.0.1:{layout.ports.airflow}   user admin   password {keys.airflow}")
    typer.echo("`sluice endpoints` also prints the passwords of the users `operator` and `viewer`.")
    if cpu_share(site, processors()) < 1:
        typer.echo(
            f"The {len(site.hosts)} hosts of this platform share this machine's {processors()} processors, "
            "so each worker gets less than its quantum."
        )
    typer.echo("Watch the pipeline with `sluice status`; stop everything with `sluice down`.")


def _report(started: "Started") -> None:
    typer.echo("\nTime of each step (a bar reaches from start to end):")
    scale = BAR / max(started.seconds, 1.0)
    for timing in sorted(started.timings, key=lambda timing: (timing.began, timing.ended)):
        bar = " " * int(timing.began * scale) + "#" * max(1, round(timing.seconds * scale))
        typer.echo(f"  {timing.name:<18} {timing.seconds:6.1f} s  {bar}")
    first = started.first_record
    flowing = "" if first is None else f"; the first record was delivered after {first:.1f} s"
    typer.echo(f"All services run after {started.seconds:.1f} s{flowing}.")


def down(as_json: AsJson = False) -> None:
    """Stop all services, slots and drivers; the data stays.

    Example: sluice down
    """
    from sluice_ops.local.layout import current_layout  # noqa: PLC0415
    from sluice_ops.local.lifecycle import down as bring_down  # noqa: PLC0415
    from sluice_ops.site.installation import PlatformError  # noqa: PLC0415
    from sluice_ops.site.site_file import SiteError  # noqa: PLC0415
    from sluice_ops.site.site_file import load as load_site  # noqa: PLC0415

    began, layout = time.monotonic(), current_layout()
    try:
        if not (layout.home.exists() or layout.site.exists()):
            load_site(layout.site)  # names the missing project
        stopped = bring_down(layout)
    except (PlatformError, SiteError) as error:
        raise _failed(error) from None
    seconds = time.monotonic() - began
    if as_json:
        print_json({"stopped": stopped, "seconds": seconds})
    elif stopped:
        typer.echo(f"Stopped {len(stopped)} services in {seconds:.1f} s; the data stays.")
    else:
        typer.echo("No service was running.")


def clean(
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask; scripts need this.")] = False,
    as_json: AsJson = False,
) -> None:
    """Ask, then stop all services and delete all data.

    Example: sluice clean
    """
    from sluice_ops.local.layout import current_layout  # noqa: PLC0415
    from sluice_ops.local.lifecycle import clean as remove  # noqa: PLC0415
    from sluice_ops.site.installation import PlatformError  # noqa: PLC0415

    try:
        layout = current_layout()
        if layout.home.exists() and not yes:
            _ask_to_delete(layout.home)
        removed = remove(layout)
    except PlatformError as error:
        raise _failed(error) from None
    if as_json:
        print_json({"removed": removed, "home": str(layout.home)})
    else:
        typer.echo(
            f"Removed {layout.home}." if removed else f"{layout.home} does not exist; nothing was removed."
        )


def _ask_to_delete(home: Path) -> None:
    """Ask a person; end with 1 after any answer but yes. WrongUsageError if nobody can be asked."""
    loss = f"all data in {home}: streams, tables, checkpoints, releases, passwords"
    if not sys.stdin.isatty():
        message = f"`sluice clean` deletes {loss}; nothing was deleted. To delete it: sluice clean --yes"
        raise WrongUsageError(message)
    if not typer.confirm(f"Delete {loss}?", err=True):
        typer.echo("Nothing was deleted, and nothing was stopped.", err=True)
        raise typer.Exit(1)


def doctor(
    host: Annotated[
        str | None, typer.Option(metavar="NAME", help="Check this machine as that host of the site file.")
    ] = None,
    memory: Annotated[
        bool, typer.Option("--memory", help="Show the memory of each service (PSS, in MiB).")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check this machine, the site file and all services.

    On the machine: Java, disk, memory and ports. Each finding has the next step. With --host, on a
    real host: check the needs of its agent, and that the host reaches the services of the endpoints
    file. The exit code is 1 if something is bad.

    Example: sluice doctor --json
    """
    from sluice_ops.doctor.finding import Verdict  # noqa: PLC0415
    from sluice_ops.site.installation import PlatformError  # noqa: PLC0415

    if host is not None and memory:
        message = "--memory shows services of the embedded platform only: leave out --host"
        raise WrongUsageError(message)
    project.use_code()
    try:
        findings = _findings(host)
        sizes = _sizes() if memory else {}
    except PlatformError as error:
        raise _failed(error) from None
    bad = [finding for finding in findings if finding.verdict is Verdict.BAD]
    if as_json:
        report: dict[str, Any] = {"ok": not bad, "findings": [vars(finding) for finding in findings]}
        print_json(report | ({"memory": sizes} if memory else {}))
    else:
        rows = [
            (finding.verdict.value, finding.thing, finding.sentence, finding.advice) for finding in findings
        ]
        print_table(("", "check", "result", "next step"), rows, "No check ran.")
        if memory:
            print_table(
                ("service", "MiB"), [*sizes.items(), ("all", sum(sizes.values()))], "No service is running."
            )
    if bad:
        raise typer.Exit(1)


def _findings(host: str | None) -> "list[Finding]":
    """Run the checks of the embedded platform, or of a host, which has fewer packages."""
    if host is not None:
        from sluice_ops.doctor import host_checks  # noqa: PLC0415

        return host_checks.examine(host, project.site_path(), project.home())
    from sluice_ops.local import doctor as platform_checks  # noqa: PLC0415
    from sluice_ops.local.layout import current_layout  # noqa: PLC0415

    return platform_checks.examine(current_layout())


def _sizes() -> dict[str, int]:
    """Return the memory of each service."""
    from sluice_ops.local.layout import current_layout  # noqa: PLC0415
    from sluice_ops.local.memory import by_service  # noqa: PLC0415

    return by_service(current_layout())


def endpoints(
    user: Annotated[
        User | None,
        typer.Argument(metavar="USER", help="With --client-properties: the user of Kafka to log in as."),
    ] = None,
    *,
    client_properties: Annotated[
        bool,
        typer.Option(
            "--client-properties",
            help="Print Kafka's client properties for librdkafka, such as confluent-kafka.",
        ),
    ] = False,
    java: Annotated[
        bool, typer.Option("--java", help="With --client-properties: for Kafka's own tools, in Java.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print the addresses of the services, and Airflow's users.

    With --client-properties: the settings for a client of Kafka.

    Example: sluice endpoints; sluice endpoints --client-properties outside > client.properties
    """
    from sluice_ops.model.access import Role  # noqa: PLC0415
    from sluice_ops.site.brokers import brokers  # noqa: PLC0415
    from sluice_ops.site.endpoints import EndpointsError, load  # noqa: PLC0415

    services = load()
    if client_properties:
        _print_client_properties(services, user, java=java, as_json=as_json)
        return
    if user is not None or java:
        message = "a user and --java belong to --client-properties: add this option"
        raise WrongUsageError(message)
    addresses = services.model_dump(mode="json", exclude={"access", "spark_secret"})
    addresses["kafka"] = brokers(services.kafka).servers
    with suppress(EndpointsError):  # the operator's password may be on another machine
        addresses["postgres"] = services.postgres_as(Role.OPERATOR)
    users = _airflow_users(services.home)
    if as_json:
        print_json({**addresses, "airflow": {**addresses["airflow"], "users": users}})
        return
    rows = [(name, value) for name, value in addresses.items() if name != "airflow"]
    logins = ", ".join(f"user {user}, password {password}" for user, password in users.items())
    airflow = f"{services.airflow.url}{f' ({logins})' if logins else ''}"
    print_table(("service", "address"), [*rows, ("airflow", airflow)], "")
    if brokers(services.kafka).users is not None:
        typer.echo("Clients of Kafka need a user: sluice endpoints --client-properties outside")


def _print_client_properties(services: "Endpoints", user: User | None, *, java: bool, as_json: bool) -> None:
    from sluice_ops.site.brokers import BrokersError, brokers  # noqa: PLC0415

    kafka = brokers(services.kafka)
    if kafka.users is not None and user is None:
        message = f"Kafka asks for a user: add one of {', '.join(User)}"
        raise WrongUsageError(message)
    try:
        address = kafka if user is None else brokers(services.kafka_as(user))
        settings = address.java_client if java else address.client
    except BrokersError as error:
        raise WrongUsageError(str(error)) from error
    if as_json:
        print_json(settings)
    else:
        typer.echo("\n".join(f"{name}={value}" for name, value in settings.items()))


def _airflow_users(home: Path) -> dict[str, str]:
    """Return the password of each Airflow user; nothing if `home` is no embedded platform's."""
    from sluice_ops.local.layout import current_layout  # noqa: PLC0415
    from sluice_ops.local.services.airflow import passwords  # noqa: PLC0415

    layout = current_layout()
    return passwords(layout) if layout.home == home and (home / "secrets.json").exists() else {}
