"""Bring the whole platform up and down: what `sluice up`, `down` and `clean` do."""

import fcntl
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace

from sluice_ops.agent.limits import control_groups
from sluice_ops.local import first_record as flowing
from sluice_ops.local.layout import Layout
from sluice_ops.local.parts import PARTS, check_ports, fetch_step, parts
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
"""Stopped after everything else, so that everybody can say goodbye."""


@dataclass(frozen=True)
class Started:
    """A platform that is up."""

    timings: list[Timing]
    seconds: float

    @property
    def first_record(self) -> float | None:
        """After how many seconds the first record was delivered."""
        return next((timing.ended for timing in self.timings if timing.name == "first-record"), None)


def catalogue(where: Layout, *, users: bool) -> tuple[list[Service], list[Step]]:
    """Return every service of this installation, and the steps that are not services; `users`: Kafka asks for one."""
    config = site_file.load(where.site)
    name = config.pipeline.rsplit(".", 1)[-1]
    services = [
        *parts(where, name, users=users, roles=True), *sluice.services(where, config), *airflow.services(where),
    ]  # fmt: skip
    supervised = tuple(service.name for service in services if service.name.startswith("airflow-"))
    patience = flowing.Patience(flowing.TIERS_SECONDS)
    others = [
        fetch_step(where),
        airflow.migration(where),
        sluice.validating(where),
        sluice.publishing(where),
        flowing.supervising(where, (*supervised, "pipeline"), patience),
        flowing.running(where, patience),
        flowing.delivering(where, patience),
    ]
    return services, others


@contextmanager
def alone(where: Layout) -> Iterator[None]:
    """Hold the home against a second start or stop at the same time."""
    where.make_folders()
    with (where.home / "run" / "lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            message = f"another `sluice up` or `down` is at work in {where.home}; wait for it, or end it with Ctrl-C"
            raise PlatformError(message) from error
        yield


def up(where: Layout, tell: Callable[[Timing], None]) -> Started:
    """Start everything, side by side, and return when a record has come all the way; what runs already stays as it is."""
    begun = time.monotonic()
    if (free := installation.free(where.home)) < installation.LOW:
        message = f"disk: {free} MiB are free at {where.home}, {installation.LOW} are needed; make room, or set SLUICE_HOME to another disk"
        raise PlatformError(message)
    with alone(where):
        supervisor = Supervisor(where)
        users = kafka.asks(where, supervisor.states(), otherwise=True)
        services, others = catalogue(where, users=users)
        check_ports(where, supervisor, services)
        endpoints_file.write(
            where, site_file.load(where.site).pipeline.rsplit(".", 1)[-1], users=users, roles=True
        )
        supervisor.launch(services)
        timings = run([*others, *steps_of(where, supervisor, services)], tell)
    return Started(timings, time.monotonic() - begun)


def down(where: Layout) -> list[str]:
    """Stop everything, and return what had to be stopped; nothing running is fine."""
    if not where.home.exists():
        return []
    with alone(where):
        supervisor = Supervisor(where)
        ran = [name for name, info in supervisor.states().items() if info["statename"] not in STOPPED]
        if supervisor.alive():
            _stop(where, supervisor, ran)
            supervisor.shutdown()
        else:
            end_units(where)
        ran.extend(kill_leftovers(where))
        priority.remove(where)
        control_groups.remove_groups(where.home)
    return ran


def _stop(where: Layout, supervisor: Supervisor, names: list[str]) -> None:
    """Stop the programs in order: first whoever uses the others; hosts end their slots and drivers while Airflow takes its time."""
    of_airflow = [name for name in names if name.startswith("airflow-")]
    ours = [name for name in names if name not in PARTS and name not in of_airflow]
    with ThreadPoolExecutor(max_workers=max(1, len(names))) as pool:
        leaving = [pool.submit(supervisor.stop, name) for name in of_airflow]
        list(pool.map(supervisor.stop, ours))
        end_units(where)
        for each in leaving:
            each.result()
        list(pool.map(supervisor.stop, [name for name in names if name in PARTS and name not in LAST]))


def clean(where: Layout) -> bool:
    """Stop everything and remove the home; tell whether there was one."""
    if not where.home.exists():
        return False
    known = ("secrets.json", "conf", "uv", "run")
    if any(where.home.iterdir()) and not any((where.home / name).exists() for name in known):
        message = (
            f"{where.home} does not look like a home of Sluice, so nothing was removed; check SLUICE_HOME"
        )
        raise PlatformError(message)
    for inner in where.home.glob("*/run/supervisord.pid"):  # a platform of the tests, below this home
        down(replace(where, home=inner.parent.parent))
    down(where)
    shutil.rmtree(where.home)
    where.socket.unlink(missing_ok=True)
    return True
