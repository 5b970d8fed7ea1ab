"""Start, stop and remove the embedded platform: `sluice up`, `down` and `clean`."""

import fcntl
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace

from sluice_ops.agent.limits import control_groups
from sluice_ops.local import first_record
from sluice_ops.local.layout import Layout
from sluice_ops.local.parts import PARTS, check_ports, fetch_step, parts, pipeline_name
from sluice_ops.local.processes import end_units, kill_leftovers
from sluice_ops.local.services import airflow, endpoints_file, kafka, sluice
from sluice_ops.local.start import priority
from sluice_ops.local.start.service import Service
from sluice_ops.local.start.starting import steps_of
from sluice_ops.local.start.steps import Step, Timing, run
from sluice_ops.local.start.supervisord import STOPPED, Supervisor
from sluice_ops.site import installation, site_file
from sluice_ops.site.installation import PlatformError

LAST = ("zookeeper",)
"""Services that stop last, so that all others can close their ZooKeeper sessions."""


@dataclass(frozen=True)
class Started:
    """The result of a start."""

    timings: list[Timing]
    seconds: float

    @property
    def first_record(self) -> float | None:
        """Seconds until the first record was delivered; None without a feed."""
        return next((timing.ended for timing in self.timings if timing.name == "first-record"), None)


def catalogue(layout: Layout, *, users: bool) -> tuple[list[Service], list[Step]]:
    """Return all services of an installation, and the steps of a start that are not services.

    `users`: Kafka asks for a user.
    """
    config = site_file.load(layout.site)
    services = [
        *parts(layout, pipeline_name(layout), users=users, roles=True),
        *sluice.services(layout, config),
        *airflow.services(layout),
    ]
    supervised = tuple(service.name for service in services if service.name.startswith("airflow-"))
    deadline = first_record.Deadline(first_record.TIERS_SECONDS)
    others = [
        fetch_step(layout),
        airflow.migration_step(layout),
        sluice.validation_step(layout),
        sluice.publish_step(layout),
        first_record.supervise_step(layout, (*supervised, "pipeline"), deadline),
        first_record.running_step(layout, deadline),
    ]
    if any(service.name == "feed" for service in services):
        others.append(first_record.delivery_step(layout, deadline))
    return services, others


def refuse_other_pipeline(layout: Layout) -> None:
    """Raise PlatformError if the home belongs to another pipeline than the site file names."""
    before, named = endpoints_file.pipeline(layout), pipeline_name(layout)
    if before in {None, named}:
        return
    message = (
        f"the home {layout.home} belongs to the pipeline {before}, but {layout.site} names {named}: nothing "
        "was changed, because two pipelines in one home would mix their streams, tables and checkpoints. "
        f"To continue with {before}, correct `pipeline`. To run {named}, use another home: "
        "SLUICE_HOME=FOLDER SLUICE_PORT_BASE=28000 sluice up. "
        f"To delete all data of {before}: sluice clean"
    )
    raise PlatformError(message)


@contextmanager
def locked(layout: Layout) -> Iterator[None]:
    """Lock the home; PlatformError if another start or stop holds the lock."""
    layout.make_folders()
    with (layout.home / "run" / "lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            message = (
                f"another `sluice up` or `sluice down` is running in {layout.home}; "
                "wait until it ends, or stop it with Ctrl-C"
            )
            raise PlatformError(message) from error
        yield


def up(layout: Layout, tell: Callable[[Timing], None]) -> Started:
    """Start everything in parallel, and return when a record was delivered.

    Running services are unaffected.
    """
    began = time.monotonic()
    refuse_other_pipeline(layout)
    if (free := installation.free(layout.home)) < installation.LOW:
        message = (
            f"only {free} MiB are free at {layout.home}, but a start needs {installation.LOW}; "
            "make room, or set SLUICE_HOME to another disk"
        )
        raise PlatformError(message)
    if not any(airflow.dags_folder().glob("*.py")):
        message = (
            f"{airflow.dags_folder()} has no DAG file, so Airflow would supervise no tier: "
            "create one there with `from sluice_airflow.dags import runbooks` and `runbooks()`"
        )
        raise PlatformError(message)
    with locked(layout):
        supervisor = Supervisor(layout)
        users = kafka.asks_for_users(layout, supervisor.states(), otherwise=True)
        services, others = catalogue(layout, users=users)
        check_ports(layout, supervisor, services)
        endpoints_file.write(layout, pipeline_name(layout), users=users, roles=True)
        supervisor.launch(services)
        timings = run([*others, *steps_of(layout, supervisor, services)], tell)
    return Started(timings, time.monotonic() - began)


def down(layout: Layout) -> list[str]:
    """Stop everything, and return the names of the stopped services and units."""
    if not layout.home.exists():
        return []
    with locked(layout):
        supervisor = Supervisor(layout)
        stopped = [name for name, info in supervisor.states().items() if info["statename"] not in STOPPED]
        if supervisor.alive():
            _stop(layout, supervisor, stopped)
            supervisor.shutdown()
        else:
            end_units(layout)
        stopped.extend(kill_leftovers(layout))
        priority.remove(layout)
        control_groups.remove_groups(layout.home)
    return stopped


def _stop(layout: Layout, supervisor: Supervisor, names: list[str]) -> None:
    """Stop Sluice's and Airflow's programs, then the slots and drivers, then the other services.

    Airflow stops slowly, so slots and drivers end meanwhile. ZooKeeper and supervisord stay.
    """
    of_airflow = [name for name in names if name.startswith("airflow-")]
    of_sluice = [name for name in names if name not in PARTS and name not in of_airflow]
    with ThreadPoolExecutor(max_workers=max(1, len(names))) as pool:
        airflow_stops = [pool.submit(supervisor.stop, name) for name in of_airflow]
        list(pool.map(supervisor.stop, of_sluice))
        end_units(layout)
        for stop in airflow_stops:
            stop.result()
        list(pool.map(supervisor.stop, [name for name in names if name in PARTS and name not in LAST]))


def clean(layout: Layout) -> bool:
    """Stop everything and remove the home; return False if there is no home.

    PlatformError if the folder does not look like a home of Sluice.
    """
    if not layout.home.exists():
        return False
    known = ("secrets.json", "conf", "uv", "run")
    if any(layout.home.iterdir()) and not any((layout.home / name).exists() for name in known):
        message = f"{layout.home} does not look like a home of Sluice; nothing was removed; check SLUICE_HOME"
        raise PlatformError(message)
    for inner in layout.home.glob("*/run/supervisord.pid"):  # platforms of tests live below this home
        down(replace(layout, home=inner.parent.parent))
    down(layout)
    shutil.rmtree(layout.home)
    layout.socket.unlink(missing_ok=True)
    return True
