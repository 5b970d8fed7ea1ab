"""Run some services of the embedded platform alone, for tests and developers.

`python -m sluice_ops.local.parts up --only zookeeper,kafka` starts two of them in the home of
SLUICE_HOME with the ports of SLUICE_PORT_BASE, waits until they answer and prints the endpoints
file. `down` stops them. `jars` fetches the jars and starts nothing. Kafka asks for no user, so
that any client can use it.
"""

import argparse
import sys
import threading
from collections.abc import Callable, Iterable

from sluice_ops.local import fetch_jars, ports
from sluice_ops.local.layout import Layout, current_layout
from sluice_ops.local.services import ec2, endpoints_file, kafka, postgres, spark_master, zookeeper
from sluice_ops.local.start import priority, steps
from sluice_ops.local.start.service import Service
from sluice_ops.local.start.starting import steps_of
from sluice_ops.local.start.supervisord import STOPPED, Supervisor
from sluice_ops.site import site_file
from sluice_ops.site.installation import PlatformError

PARTS = ("zookeeper", "kafka", "postgres", "spark", "ec2")
"""The services that are not Sluice's or Airflow's."""


def parts(layout: Layout, pipeline: str, *, users: bool, roles: bool) -> list[Service]:
    """Return these services; `users`: Kafka asks for a user; `roles`: PostgreSQL has roles."""
    return [
        zookeeper.service(layout, pipeline),
        kafka.service(layout, users=users),
        postgres.service(layout, roles=roles),
        spark_master.service(layout),
        ec2.service(layout),
    ]


def fetch_step(layout: Layout) -> steps.Step:
    """Return the step that fetches the jars."""

    def act(halt: threading.Event) -> str:
        fetch_jars.fetch(layout, halt, buckets=in_a_bucket(layout))
        return "fetched and verified"

    return steps.Step("jars", act)


def in_a_bucket(layout: Layout) -> bool:
    """Return True if the site keeps checkpoints in a bucket."""
    return site_file.load(layout.site).checkpoints is not None


def pipeline_name(layout: Layout) -> str:
    """Return the pipeline's short name: `hits` for `shop.hits`."""
    return site_file.load(layout.site).pipeline.rsplit(".", 1)[-1]


def check_ports(layout: Layout, supervisor: Supervisor, services: Iterable[Service]) -> None:
    """Raise PlatformError if another program holds a port of a service that does not run yet."""
    states = supervisor.states()
    names = {port: name for name, port in layout.ports.named().items()}
    idle = [
        service for service in services if states.get(service.name, {}).get("statename", "STOPPED") in STOPPED
    ]
    problems = ports.taken({names[port]: port for service in idle for port in service.ports})
    if problems:
        message = (
            "; ".join(problems) + ". Stop this program, or use other ports: SLUICE_PORT_BASE=28000 sluice up "
            f"(the base is {layout.ports.zookeeper - 1} now; the platform uses the ports just above it)"
        )
        raise PlatformError(message)


def start(layout: Layout, only: Iterable[str], tell: Callable[[steps.Timing], None]) -> None:
    """Start the services named in `only`, and return when each answers."""
    layout.make_folders()
    name = pipeline_name(layout)
    supervisor = Supervisor(layout)
    users = kafka.asks_for_users(layout, supervisor.states(), otherwise=False)
    roles = layout.postgres_users.exists()
    all_services = parts(layout, name, users=users, roles=roles)
    wanted = [service for service in all_services if service.name in set(only)]
    check_ports(layout, supervisor, wanted)
    endpoints_file.write(layout, name, users=users, roles=roles)
    supervisor.launch(all_services)
    fetch = [fetch_step(layout)] if any("jars" in service.needs for service in wanted) else []
    steps.run([*fetch, *steps_of(layout, supervisor, wanted)], tell)


def stop(layout: Layout) -> None:
    """Stop all services of this home, if any run."""
    supervisor = Supervisor(layout)
    if supervisor.alive():
        supervisor.shutdown()
    priority.remove(layout)


def main() -> None:
    """Run `up`, `down` or `jars`."""
    parser = argparse.ArgumentParser(prog="python -m sluice_ops.local.parts", description=__doc__)
    parser.add_argument("command", choices=("up", "down", "jars"))
    parser.add_argument(
        "--only",
        default=",".join(PARTS),
        help=f"the services, separated by commas (default: {','.join(PARTS)})",
    )
    arguments = parser.parse_args()
    only = arguments.only.split(",")
    unknown = sorted(set(only) - set(PARTS))
    if unknown:
        parser.error(f"unknown services: {', '.join(unknown)}; known: {', '.join(PARTS)}")
    layout = current_layout()

    def tell(timing: steps.Timing) -> None:
        print(f"{timing.name:<12} {timing.seconds:6.1f} s  {timing.said}", flush=True)  # noqa: T201

    try:
        if arguments.command == "up":
            start(layout, only, tell)
            print(f"endpoints    {layout.endpoints}")  # noqa: T201
        elif arguments.command == "jars":
            layout.make_folders()
            fetch_jars.fetch(layout, threading.Event(), buckets=in_a_bucket(layout))
        else:
            stop(layout)
    except PlatformError as error:
        sys.exit(f"{error}")


if __name__ == "__main__":
    main()
