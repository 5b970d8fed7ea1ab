"""Every host refuses code in the shared folder that differs from the published release, even with a
forged digest.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from sluice import releases
from sluice.api import declarations
from sluice_ops.channel import Channel
from sluice_ops.model import paths
from sluice_ops.model.access import Role
from sluice_ops.model.ids import HostName, Incarnation, TierName
from sluice_ops.model.incarnation import IncarnationReport, IncarnationSpec, OwnerRecord, Placement, State
from sluice_ops.site.endpoints import Endpoints
from tests.lab import HOSTS, ROOT, free_base, until

pytestmark = pytest.mark.timeout(180)
PIPELINE = "hits"
TIER = TierName("entry")


@pytest.fixture
def channel(tmp_path: Path) -> Iterator[Channel]:
    """Return an admin's channel of a home that has only ZooKeeper."""
    base = str(free_base())
    other_variables = {key: value for key, value in os.environ.items() if not key.startswith("SLUICE_")}
    env = other_variables | {"SLUICE_HOME": str(tmp_path), "SLUICE_PORT_BASE": base}
    command = [sys.executable, "-m", "sluice_ops.local.parts"]
    try:
        subprocess.run([*command, "up", "--only", "zookeeper"], env=env, cwd=ROOT, check=True)
        endpoints_of_home = Endpoints.model_validate_json((tmp_path / "endpoints.json").read_text())
        with Channel(
            endpoints_of_home.zookeeper, endpoints_of_home.required_credential(Role.ADMIN)
        ) as admin_channel:
            yield admin_channel
    finally:
        subprocess.run([*command, "down"], env=env, cwd=ROOT, check=True)


def drive(home: Path, number: int, host: str) -> "subprocess.Popen[bytes]":
    """Start a driver as a host's agent does, with the host's own folder and the shared one."""
    host_folder = home / "hosts" / host
    host_folder.mkdir(parents=True, exist_ok=True)
    env = {name: value for name, value in os.environ.items() if not name.startswith("SLUICE_")} | {
        "SLUICE_HOME": str(host_folder),
        "SLUICE_ENDPOINTS": str(home / "endpoints.json"),
        "SLUICE_SITE": str(ROOT / "site.yaml"),
        "SLUICE_HOST": host,
        "SLUICE_HOST_ADDRESS": HOSTS[host],
        "TMPDIR": str(host_folder),
    }
    with (host_folder / "log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "sluice.driver", TIER, str(number), "400", str(home)],
            env=env,
            cwd=ROOT,
            stdout=log,
            stderr=log,
        )


def test_changed_code_in_the_shared_folder_is_refused_by_every_host(channel: Channel, tmp_path: Path) -> None:
    release, _ = releases.store(tmp_path, PIPELINE, 1.0, dict)
    channel.put(paths.release(release.name), release)
    channel.put(paths.tier(TIER), declarations.load(PIPELINE).spec(TIER))
    release_folder = releases.place(tmp_path, release.name)
    code = next((release_folder / "code").iterdir())
    with (code / "__init__.py").open("a") as source:
        source.write(f"\nopen('{tmp_path}/ran', 'w')\n")
    forged = json.loads((release_folder / "release.json").read_text()) | {"digest": releases.digest(code)}
    (release_folder / "release.json").write_text(json.dumps(forged))
    drivers = []
    try:
        for number, host in enumerate(HOSTS, start=1):
            name = HostName(host)
            spec = IncarnationSpec(
                tier=TIER,
                incarnation=Incarnation(number),
                placement=Placement(driver=name, slots=(name,)),
                reason="test",
                created_at=0.0,
                release=release.name,
            )
            channel.put(paths.incarnation(TIER, number), spec)
            channel.put(paths.owner(TIER), OwnerRecord(owner=number, epoch=number))
            drivers.append(drive(tmp_path, number, host))
            started = psutil.Process(drivers[-1].pid)
            jvms = until("the driver has started its JVM", started.children)

            def failed(number: int = number) -> IncarnationReport | None:
                versioned = channel.read(paths.report(TIER, number), IncarnationReport)
                return (
                    versioned.value
                    if versioned is not None and versioned.value.state is State.FAILED
                    else None
                )

            report = until(f"the driver on {host} refuses the code", failed, 60)
            assert (
                f"release {release.name} in {releases.folder(tmp_path)} was changed after it was published"
                in (report.error or "")
            )
            assert drivers[-1].wait(30) == 1
            _, alive = psutil.wait_procs(jvms, timeout=10)
            assert not alive, "the driver leaves its JVM behind"
    finally:
        for driver in drivers:
            if driver.poll() is None:
                jvms = psutil.Process(driver.pid).children(recursive=True)
                for process in (driver, *jvms):  # a killed driver leaves its JVM behind
                    process.kill()
                driver.wait()
    assert not (tmp_path / "ran").exists()
