"""A host on which every unit dies.

Agent, controller and Workers are real; drivers and two more hosts are simulated. No JVM starts on
the host, as with a damaged disk. A person repairs it, or only returns it.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from simulation.live import LiveWorld
from simulation.world import Runbook, host, tier

from sluice_ops.model import paths
from sluice_ops.model.assignment import HostRecord, HostState, Unit, UnitKind
from sluice_ops.model.change import CONTROLLER, ChangeRecord
from sluice_ops.model.tier import Mode
from tests.integration.sluice_ops.agent.conftest import DEADLINE_SECONDS, Lab

pytestmark = pytest.mark.timeout(600)

BAD = "h1"
SITE = """\
pipeline: hits
repair_seconds: 30
hosts:
  - {name: h1, address: 127.0.1.1, capacity: {cpu: 2, memory: 8g}}
  - {name: h2, address: 127.0.1.2, capacity: {cpu: 8, memory: 16g}}
  - {name: h3, address: 127.0.1.3, capacity: {cpu: 8, memory: 16g}}
shares:
  counts: {minimum: 1, target: 3, maximum: 4}
  enrich: {minimum: 1, target: 3, maximum: 4}
"""
"""h1 has room for one worker of each tier, and for no driver."""


class Site:
    """The pipeline, the options file that each JVM reads at its start, and the state of h1."""

    def __init__(self, lab: Lab, world: LiveWorld, options: Path) -> None:
        self.lab, self.world, self.options = lab, world, options

    def repair(self) -> None:
        self.options.touch()

    def record(self) -> HostRecord:
        versioned = self.lab.channel.read(paths.host_record(BAD), HostRecord)
        return HostRecord() if versioned is None else versioned.value

    def workers(self) -> list[Unit]:
        """Return the slots assigned to h1."""
        return [unit for unit in self.world.assigned(BAD) if unit.kind is UnitKind.SLOT]

    def cordoned(self) -> HostRecord:
        """Wait until h1 is in quarantine and has no unit; return its record."""
        self.world.until_true(lambda: self.record().state is HostState.CORDONED, DEADLINE_SECONDS)
        self.world.until_true(lambda: not self.workers(), DEADLINE_SECONDS)
        return self.record()

    def return_h1(self, change: str) -> Runbook:
        """Return h1, as a person does."""
        back = self.world.begin(change, kind="return", host=BAD)
        self.world.until_true(lambda: back.ended, DEADLINE_SECONDS)
        return back

    def wait_repaired(self) -> list[ChangeRecord]:
        """Wait until the controller has placed a worker of each tier on h1; return its changes."""
        self.world.until_true(
            lambda: {unit.tenant for unit in self.workers()} == {"counts", "enrich"}, DEADLINE_SECONDS
        )
        names = [name for name in self.lab.channel.children("/changes") if name.startswith("repair-")]
        records = [self.lab.channel.read(paths.change(name), ChangeRecord) for name in names]  # type: ignore[arg-type]
        return [record.value for record in records if record is not None]


@pytest.fixture
def site(lab: Lab, tmp_path: Path) -> Iterator[Site]:
    missing = tmp_path / "jvm.options"
    lab.environment["_JAVA_OPTIONS"] = f"-XX:VMOptionsFile={missing}"
    with failing(lab, missing) as site:
        yield site


@contextmanager
def failing(lab: Lab, options: Path, **changed: object) -> Iterator[Site]:
    """Place workers of two tiers on h1, where they die; `changed` changes fields of both tiers."""
    tiers = [
        tier(name, Mode.BATCH, number).model_copy(update=changed)
        for number, name in enumerate(("counts", "enrich"))
    ]
    site = Site(lab, LiveWorld(hosts=(host("h2"), host("h3")), tiers=tiers, channel=lab.channel), options)
    with lab.running_controller(SITE):
        lab.start_agent(BAD)
        site.world.until_true(lambda: lab.channel.exists(paths.live(BAD)), DEADLINE_SECONDS)
        site.world.want()
        yield site


@pytest.mark.long
def test_a_failing_host_is_evacuated_until_a_person_returns_it(
    site: Site,
) -> None:
    began = time.time()
    record = site.cordoned()
    assert record.reason.startswith("units of counts, enrich died there ")
    assert record.until is not None
    assert record.until - began > 3000
    assert site.lab.has_logged("A fatal exception has occurred", BAD), "the reason is in the agent's log"
    assert {len(site.world.placement(name).slots) for name in ("counts", "enrich")} == {3}, (
        "the workers run on other hosts"
    )
    site.world.until_true(site.world.all_well, DEADLINE_SECONDS)
    site.repair()
    assert site.return_h1("r1").ok
    assert (site.record().state, site.record().reason, site.record().deaths) == (HostState.UP, "", ())
    assert {change.by for change in site.wait_repaired()} == {CONTROLLER}
    for unit in site.workers():
        assert site.lab.wait_running(unit, BAD).restarts == 0
        site.world.until_true(
            lambda unit=unit: "Successfully registered with master" in site.lab.log(unit, BAD),
            DEADLINE_SECONDS,
        )


@pytest.mark.long
def test_a_host_that_is_returned_and_still_fails_is_left_again(site: Site) -> None:
    record = site.cordoned()
    assert site.return_h1("r1").ok
    assert site.record().deaths == (), "deaths are counted from zero"
    site.wait_repaired()
    again = site.cordoned()
    assert again.since > record.since
    assert again.reason.startswith("units of counts, enrich died there ")
