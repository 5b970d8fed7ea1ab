"""What the platform's own ZooKeeper refuses is in a log: who wanted it, from where, and with which node."""

import subprocess
import time
from dataclasses import replace

import pytest

from sluice_ops.agent.host.store import HostFolder
from sluice_ops.channel import Channel, NotAllowedError, Write
from sluice_ops.local.layout import Layout, Ports
from sluice_ops.local.logbook import find
from sluice_ops.local.services import zookeeper
from sluice_ops.model import paths
from sluice_ops.model.access import Role
from sluice_ops.model.assignment import Assignment, HostFacts
from sluice_ops.site import credentials
from tests.ensemble import free_ports

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def where(tmp_path):
    """A home in which ZooKeeper serves as `make up` has it serve, with access lists."""
    (port,) = free_ports(1)
    made = Layout(
        home=tmp_path, ports=replace(Ports.above(40000), zookeeper=port), site=tmp_path / "site.yaml"
    )
    made.make_folders()
    service = zookeeper.service(made, "hits")
    service.prepare()
    log = made.logs / "zookeeper.log"
    with log.open("w") as out:
        server = subprocess.Popen(service.program.command, stdout=out, stderr=out)
    try:
        until = time.monotonic() + 60
        while True:
            try:
                service.ready()
                break
            except OSError:
                assert time.monotonic() < until, log.read_text()[-2000:]
                time.sleep(0.1)
        service.after()
        yield made
    finally:
        server.terminate()
        server.wait(20)


def connected(where, credential):
    return Channel(f"127.0.0.1:{where.ports.zookeeper}/sluice/hits", credential)


def refused(where):
    """Return what the log of refusals says of each one: who, from where, what, and with which node."""
    lines = find(where)["refused"].read_text().splitlines()
    entries = [dict(pair.split("=", 1) for pair in line.split("\t")[1:]) for line in lines]
    return [
        (set(each["user"].split(",")), each["ip"], each["operation"], each.get("znode")) for each in entries
    ]


def test_a_write_that_is_denied_is_recorded_with_who_wanted_it_and_what(where):
    roles, assigned = credentials.make(where.credentials), paths.assignment("h1")
    folder = HostFolder(where.home, "h1")
    folder.make()
    own = folder.credential()
    with connected(where, roles.credential(Role.CONTROLLER)) as controller:
        controller.put(assigned, Assignment())
        controller.put(assigned, Assignment(epoch=1))
    with connected(where, replace(roles.credential(Role.AGENT), own=own)) as agent:
        agent.put(
            paths.host("h1"),
            HostFacts(name="h1", address="127.0.0.1", zone="onprem", cpu=1, memory=1, known_as=own.known_as),
        )
        made = len(refused(where))  # of a node that is to be made, it is tried first whether it is there
        for act in (
            lambda: agent.put(assigned, Assignment(epoch=7)),
            lambda: agent.delete(assigned),
            lambda: agent.multi([Write(assigned, Assignment(epoch=7), 0)]),
        ):
            with pytest.raises(NotAllowedError):
                act()
    with connected(where, None) as nobody, pytest.raises(NotAllowedError):
        nobody.put(assigned, Assignment(epoch=7))
    who, node = {"agent", "agent-h1", "127.0.0.1"}, f"/sluice/hits{assigned}"
    assert refused(where)[made:] == [
        (who, "127.0.0.1", "setData", node),
        (who, "127.0.0.1", "delete", node),
        (who, "127.0.0.1", "multiOperation", None),
        ({"127.0.0.1"}, "127.0.0.1", "setData", node),
    ]
    assert all(operation in {"setData", "create"} for _, _, operation, _ in refused(where)[:made]), (
        "what was done is not in it"
    )
    said = "".join(log.read_text() for log in where.logs.glob("*.log"))
    for kept in (*where.credentials.iterdir(), where.home / "hosts" / "h1" / "credential"):
        assert kept.read_text().strip() not in said
