"""All services of the platform, and a way to run some of them alone: `python -m sluice_ops.local.parts up --only zookeeper,kafka`.

Integration tests and developers start the real parts that they need with it, in a SLUICE_HOME and a SLUICE_PORT_BASE of their own;
`up` waits until they answer and prints the endpoints, `down` stops them, `jars` fetches the jars and starts nothing. Kafka asks for no
user then: what is measured beside Sluice, and what a developer has at hand, speaks to it as well.
"""

import argparse
import sys
import threading
from collections.abc import Callable, Iterable

from sluice_ops.local import ec2, fetch_jars, ports
from sluice_ops.local.layout import Layout, layout
from sluice_ops.local.services import endpoints_file, kafka, postgres, spark_master, zookeeper
from sluice_ops.local.start import priority, steps
from sluice_ops.local.start.service import Service
from sluice_ops.local.start.starting import steps_of
from sluice_ops.local.start.supervisord import STOPPED, Supervisor
from sluice_ops.site import site_file
from sluice_ops.site.installation import PlatformError

PARTS = ("zookeeper", "kafka", "postgres", "spark", "ec2")
"""What runs without anything of Sluice itself."""


def parts(where: Layout, pipeline: str, *, users: bool, roles: bool) -> list[Service]:
    """Describe the parts that Sluice stands on; `users`: Kafka asks for one; `roles`: PostgreSQL has them."""
    return [
        zookeeper.service(where, pipeline),
        kafka.service(where, users=users),
        postgres.service(where, roles=roles),
        spark_master.service(where),
        ec2.service(where),
    ]


def fetch_step(where: Layout) -> steps.Step:
    """Return the step that brings the jars."""

    def act(halt: threading.Event) -> str:
        fetch_jars.fetch(where, halt, buckets=in_a_bucket(where))
        return "fetched and verified"

    return steps.Step("jars", act)


def in_a_bucket(where: Layout) -> bool:
    """Tell whether the site keeps checkpoints in a bucket."""
    return site_file.load(where.site).checkpoints is not None


def pipeline_name(where: Layout) -> str:
    """Return the pipeline's short name: `hits` for `hits`."""
    return site_file.load(where.site).pipeline.rsplit(".", 1)[-1]


def check_ports(where: Layout, supervisor: Supervisor, services: Iterable[Service]) -> None:
    """Refuse to start what would find its port taken."""
    states = supervisor.states()
    names = {port: name for name, port in where.ports.named().items()}
    idle = [
        service for service in services if states.get(service.name, {}).get("statename", "STOPPED") in STOPPED
    ]
    problems = ports.taken({names[port]: port for service in idle for port in service.ports})
    if problems:
        message = (
            "; ".join(problems)
            + ". Stop it, or give this checkout other ports: SLUICE_PORT_BASE=28000 make up "
            f"(now {where.ports.zookeeper - 1}; the ports just above it are used)"
        )
        raise PlatformError(message)


def start(where: Layout, only: Iterable[str], tell: Callable[[steps.Timing], None]) -> None:
    """Start the named parts and return when each answers."""
    where.make_folders()
    name = pipeline_name(where)
    supervisor = Supervisor(where)
    users = kafka.asks(where, supervisor.states(), otherwise=False)
    roles = where.postgres_users.exists()
    known = parts(where, name, users=users, roles=roles)
    wanted = [service for service in known if service.name in set(only)]
    check_ports(where, supervisor, wanted)
    endpoints_file.write(where, name, users=users, roles=roles)
    supervisor.launch(known)
    fetch = [fetch_step(where)] if any("jars" in service.needs for service in wanted) else []
    steps.run([*fetch, *steps_of(where, supervisor, wanted)], tell)


def stop(where: Layout) -> None:
    """Stop whatever runs under this home's supervisord; nothing running is fine."""
    supervisor = Supervisor(where)
    if supervisor.alive():
        supervisor.shutdown()
    priority.remove(where)


def main() -> None:
    """Run from a shell."""
    parser = argparse.ArgumentParser(prog="python -m sluice_ops.local.parts", description=__doc__)
    parser.add_argument("command", choices=("up", "down", "jars"))
    parser.add_argument(
        "--only", default=",".join(PARTS), help=f"which parts, with commas (all: {','.join(PARTS)})"
    )
    arguments = parser.parse_args()
    only = arguments.only.split(",")
    unknown = sorted(set(only) - set(PARTS))
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(PARTS)}")
    where = layout()
    try:
        if arguments.command == "up":
            start(
                where,
                only,
                lambda timing: print(f"{timing.name:<12} {timing.seconds:6.1f} s  {timing.said}", flush=True),  # noqa: T201
            )
            print(f"endpoints    {where.endpoints}")  # noqa: T201
        elif arguments.command == "jars":
            where.make_folders()
            fetch_jars.fetch(where, threading.Event(), buckets=in_a_bucket(where))
        else:
            stop(where)
    except PlatformError as error:
        sys.exit(f"{error}")


if __name__ == "__main__":
    main()
