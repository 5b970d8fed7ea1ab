"""ZooKeeper's refusals are in a log: the user, the address, the operation and the node."""

import subprocess
import time
from dataclasses import replace

import pytest

from sluice_ops.agent.host.store import HostFolder
from sluice_ops.channel import Channel, NotAllowedError, Write
from sluice_ops.local.layout import Layout, Ports
from sluice_ops.local.services import zookeeper
from sluice_ops.model import paths
from sluice_ops.model.access import Role
from sluice_ops.model.assignment import Assignment, HostFacts
from sluice_ops.queries.unit_logs import service_logs
from sluice_ops.site import credentials
from tests.ensemble import free_ports

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def layout(tmp_path):
    """A home whose ZooKeeper is set up as `make up` does, with access lists."""
    (port,) = free_ports(1)
    zookeeper_home = Layout(
        home=tmp_path, ports=replace(Ports.above(40000), zookeeper=port), site=tmp_path / "site.yaml"
    )
    zookeeper_home.make_folders()
    service = zookeeper.service(zookeeper_home, "hits")
    service.prepare()
    log = zookeeper_home.logs / "zookeeper.log"
    with log.open("w") as out:
        server = subprocess.Popen(service.program.command, stdout=out, stderr=out)
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                service.ready()
                break
            except OSError:
                assert time.monotonic() < deadline, log.read_text()[-2000:]
                time.sleep(0.1)
        service.after()
        yield zookeeper_home
    finally:
        server.terminate()
        server.wait(20)


def connected(layout, credential):
    return Channel(f"127.0.0.1:{layout.ports.zookeeper}/sluice/hits", credential)


def logged_refusals(layout):
    """Return the user, address, operation and node of each refusal in the log."""
    lines = service_logs(layout.home)["refused"].read_text().splitlines()
    entries = [dict(pair.split("=", 1) for pair in line.split("\t")[1:]) for line in lines]
    return [
        (set(entry["user"].split(",")), entry["ip"], entry["operation"], entry.get("znode"))
        for entry in entries
    ]


def test_a_denied_write_is_recorded_with_its_user_and_node(layout):
    roles, assigned = credentials.make(layout.credentials), paths.assignment("h1")
    folder = HostFolder(layout.home, "h1")
    folder.make()
    own = folder.credential()
    with connected(layout, roles.credential(Role.CONTROLLER)) as controller:
        controller.put(assigned, Assignment())
        controller.put(assigned, Assignment(epoch=1))
    with connected(layout, replace(roles.credential(Role.AGENT), own=own)) as agent:
        agent.put(
            paths.host("h1"),
            HostFacts(name="h1", address="127.0.0.1", zone="onprem", cpu=1, memory=1, known_as=own.known_as),
        )
        # kazoo first tests whether a node exists before it creates the node
        earlier = len(logged_refusals(layout))
        for write in (
            lambda: agent.put(assigned, Assignment(epoch=7)),
            lambda: agent.delete(assigned),
            lambda: agent.multi([Write(assigned, Assignment(epoch=7), 0)]),
        ):
            with pytest.raises(NotAllowedError):
                write()
    with connected(layout, None) as nobody, pytest.raises(NotAllowedError):
        nobody.put(assigned, Assignment(epoch=7))
    users, node = {"agent", "agent-h1", "127.0.0.1"}, f"/sluice/hits{assigned}"
    assert logged_refusals(layout)[earlier:] == [
        (users, "127.0.0.1", "setData", node),
        (users, "127.0.0.1", "delete", node),
        (users, "127.0.0.1", "multiOperation", None),
        ({"127.0.0.1"}, "127.0.0.1", "setData", node),
    ]
    assert all(
        operation in {"setData", "create"} for _, _, operation, _ in logged_refusals(layout)[:earlier]
    ), "allowed writes are not in the log"
    log_text = "".join(log.read_text() for log in layout.logs.glob("*.log"))
    for secret_file in (*layout.credentials.iterdir(), layout.home / "hosts" / "h1" / "credential"):
        assert secret_file.read_text().strip() not in log_text
