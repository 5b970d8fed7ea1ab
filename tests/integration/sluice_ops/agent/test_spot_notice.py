"""EC2 gives a host its spot notice: the host is drained before EC2 ends it.

Metadata service, agent, Worker and controller are real; drivers and two more hosts are simulated.
"""

import json
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import pytest
from simulation.live import LiveWorld
from simulation.world import host, tier

from sluice_ops.local.ec2_metadata import MetadataService
from sluice_ops.model import paths
from sluice_ops.model.assignment import HostRecord, HostState
from sluice_ops.model.ids import HostName
from sluice_ops.model.tier import Mode
from tests.integration.sluice_ops.agent.conftest import DEADLINE_SECONDS, Lab

pytestmark = pytest.mark.timeout(400)

ENDING = HostName("h1")
NOTICE_SECONDS = 120.0
"""EC2 gives notice two minutes before it ends a spot instance."""
HEARD_SECONDS = 15.0
"""From the notice until it is in ZooKeeper; the agent asks each 5 s."""
SITE = """\
pipeline: hits
hosts:
  - {name: h1, address: 127.0.1.1, capacity: {cpu: 1, memory: 8g}}
  - {name: h2, address: 127.0.1.2, capacity: {cpu: 8, memory: 16g}}
  - {name: h3, address: 127.0.1.3, capacity: {cpu: 8, memory: 16g}}
shares:
  counts: {minimum: 1, target: 3, maximum: 4}
"""
"""h1 has room for one worker, and for no driver."""


def test_a_host_is_drained_within_its_spot_notice(lab: Lab, tmp_path: Path) -> None:
    world = LiveWorld(
        hosts=(host("h2"), host("h3")), tiers=[tier("counts", Mode.BATCH, 0)], channel=lab.channel
    )

    def record() -> HostRecord:
        read = lab.channel.read(paths.host_record(ENDING), HostRecord)
        return HostRecord() if read is None else read.value

    def told() -> str | None:
        seen = lab.observed(ENDING)
        return None if seen is None else seen.ending(ENDING)

    with ExitStack() as stack:
        service = MetadataService(tmp_path / "metadata")
        stack.callback(service.stop)
        stack.enter_context(lab.running_controller(SITE))
        lab.start_agent(ENDING, "--metadata", service.address(ENDING))
        world.until_true(lambda: lab.channel.exists(paths.live(ENDING)), DEADLINE_SECONDS)
        world.want()
        world.until_true(lambda: world.all_well() and world.assigned(ENDING), DEADLINE_SECONDS)
        (unit,) = world.assigned(ENDING)
        begun = time.time()
        notice = tmp_path / "metadata" / ENDING / "spot" / "instance-action"
        notice.parent.mkdir(parents=True)
        end = datetime.fromtimestamp(begun + NOTICE_SECONDS, UTC)
        notice.write_text(json.dumps({"action": "terminate", "time": f"{end:%Y-%m-%dT%H:%M:%SZ}"}))
        world.until_true(told, HEARD_SECONDS)
        heard = time.time() - begun
        assert told() == f"EC2 ends h1 at {end:%H:%M:%S} UTC"
        world.until_true(
            lambda: record().state is HostState.DRAINED and lab.unit(unit) is None, NOTICE_SECONDS - heard
        )
        print(f"the notice is in ZooKeeper after {heard:.1f} s; drained after {time.time() - begun:.1f} s")
        world.until_true(world.all_well, DEADLINE_SECONDS)
        assert set(world.placement("counts").slots) <= {"h2", "h3"}
