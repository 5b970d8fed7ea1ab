"""A slot whose neighbours take its processor: processes spin beside the slot, all on one core.

Agent, Worker, controller and spinning processes are real; two more hosts and the driver are
simulated.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from simulation.live import LiveWorld
from simulation.world import host, tier

from sluice_ops.agent.limits.control_groups import find_containers
from sluice_ops.model import paths
from sluice_ops.model.assignment import HostRecord, HostState, Unit, UnitKind
from sluice_ops.model.change import CONTROLLER, ChangeRecord, ChangeState
from sluice_ops.model.status import ControllerStatus, Starved
from sluice_ops.model.tier import Mode
from sluice_ops.process.metrics_server import exporters
from tests.integration.sluice_ops.agent.conftest import DEADLINE_SECONDS, REPOSITORY, Lab, limited
from tests.scrape import scrape

pytestmark = [limited, pytest.mark.long, pytest.mark.timeout(500)]

BAD, CORE = "h1", max(os.sched_getaffinity(0))
SITE = """\
pipeline: hits
repair_seconds: 30
hosts:
  - {name: h1, address: 127.0.1.1, capacity: {cpu: 1, memory: 8g}}
  - {name: h2, address: 127.0.1.2, capacity: {cpu: 8, memory: 16g}}
  - {name: h3, address: 127.0.1.3, capacity: {cpu: 8, memory: 16g}}
shares:
  counts: {minimum: 1, target: 3, maximum: 4}
"""
"""h1 has room for one worker, and for no driver."""
SPINNERS = 6


class Site:
    """The pipeline, and the processes that spin beside it."""

    def __init__(self, lab: Lab, world: LiveWorld) -> None:
        self.lab, self.world = lab, world
        self.running: list[subprocess.Popen[str]] = []

    def burn(self, *procs_files: Path) -> None:
        """Keep a process busy on the core.

        The kernel weighs its session on its own, unless the process joins control groups.
        """
        script = "".join(f'echo $$ > "{file}"; ' for file in procs_files) + 'exec "$@"'
        words = [
            "taskset",
            "-c",
            str(CORE),
            "sh",
            "-c",
            script,
            "sh",
            sys.executable,
            "-m",
            "tests.burn",
            "work",
            "600",
        ]
        self.running.append(
            subprocess.Popen(
                words, cwd=REPOSITORY, stdout=subprocess.DEVNULL, text=True, start_new_session=True
            )
        )

    def stop_spinning(self) -> None:
        for process in self.running:
            process.kill()
            process.wait()
        self.running.clear()

    def slot(self) -> Unit | None:
        """Return the slot assigned to h1."""
        return next((unit for unit in self.world.assigned(BAD) if unit.kind is UnitKind.SLOT), None)

    def starved(self) -> Starved | None:
        versioned = self.lab.channel.read(paths.CONTROLLER_STATUS, ControllerStatus)
        return (
            None
            if versioned is None or "counts" not in versioned.value.tiers
            else versioned.value.tiers["counts"].starved
        )  # type: ignore[index]

    def moves(self) -> list[ChangeRecord]:
        names = [name for name in self.lab.channel.children("/changes") if name != "lock"]
        records = [self.lab.channel.read(paths.change(name), ChangeRecord) for name in names]
        return [record.value for record in records if record is not None]


@pytest.fixture
def site(lab: Lab) -> Iterator[Site]:
    site = Site(
        lab,
        LiveWorld(hosts=(host("h2"), host("h3")), tiers=[tier("counts", Mode.BATCH, 0)], channel=lab.channel),
    )
    with lab.running_controller(SITE):
        try:
            # the units that the agent starts inherit the core
            os.sched_setaffinity(lab.start_agent(BAD).pid, {CORE})
            site.world.until_true(lambda: lab.channel.exists(paths.live(BAD)), DEADLINE_SECONDS)
            site.world.want()
            site.world.until_true(site.world.all_well, DEADLINE_SECONDS)
            site.world.until_true(lambda: site.slot() is not None, DEADLINE_SECONDS)
            yield site
        finally:
            site.stop_spinning()


def test_a_starved_slot_is_detected_and_its_tier_is_moved(site: Site) -> None:
    world, unit = site.world, site.slot()
    assert unit is not None
    site.lab.wait_running(unit, BAD)
    site.burn(*find_containers(site.lab.home, BAD).admit(unit))
    for _ in range(SPINNERS):
        site.burn()
    world.until_true(lambda: site.starved() is not None, DEADLINE_SECONDS)
    starved = site.starved()
    assert starved is not None
    assert starved.hosts == (BAD,)
    assert starved.sentence.startswith(
        "is starved of processor time on h1: the tier is moved after 30 s of starvation; "
        "to free the host: see what else runs there"
    )
    assert site.lab.has_logged("unit is starved", BAD)
    metrics = scrape(
        next(exporter for exporter in exporters(site.lab.channel) if exporter.host == BAD), unit=unit.id
    )
    assert metrics["sluice_unit_starved"] == 1
    assert metrics["sluice_unit_cpu_waited_seconds_total"] > metrics["sluice_unit_cpu_seconds_total"] / 2
    world.until_true(
        lambda: any(change.state is ChangeState.DONE for change in site.moves()), DEADLINE_SECONDS
    )
    (change,) = site.moves()
    assert (change.id, change.by) == ("repair-counts-starved-1", CONTROLLER)
    assert BAD not in world.placement("counts").hosts
    assert len(world.placement("counts").slots) == 3
    versioned = site.lab.channel.read(paths.host_record(BAD), HostRecord)
    assert versioned is not None
    assert (versioned.value.state, versioned.value.reason) == (
        HostState.CORDONED,
        "counts is starved of processor time there",
    )
    world.until_true(lambda: site.starved() is None, DEADLINE_SECONDS)
