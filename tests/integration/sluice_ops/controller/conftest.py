"""A ZooKeeper server for this test run, from pyspark's jars, and a tree with access lists."""

import socket
import subprocess
import time
from pathlib import Path

import pyspark
import pytest

from sluice_ops.channel import Channel, access_lists
from sluice_ops.model.access import Role
from sluice_ops.site import credentials, endpoints
from sluice_ops.site.java import JAVA


@pytest.fixture(scope="session")
def zookeeper_port():
    """Return a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="session")
def zookeeper(zookeeper_process, zookeeper_port):  # noqa: ARG001 - the process has to run
    """Return the address of a running ZooKeeper server."""
    return f"127.0.0.1:{zookeeper_port}"


@pytest.fixture(scope="session")
def zookeeper_process(tmp_path_factory, zookeeper_port):
    """Start ZooKeeper."""
    port = zookeeper_port
    data = tmp_path_factory.mktemp("zookeeper")
    config = data / "zoo.cfg"
    config.write_text(
        f"dataDir={data}\nclientPort={port}\nclientPortAddress=127.0.0.1\n"
        "tickTime=1000\nadmin.enableServer=false\n"
    )
    jars = Path(pyspark.__file__).parent / "jars/*"
    with (data / "log").open("w") as log:
        process = subprocess.Popen(
            [
                JAVA,
                "-Xmx128m",
                "-cp",
                str(jars),
                "org.apache.zookeeper.server.ZooKeeperServerMain",
                str(config),
            ],
            stdout=log,
            stderr=log,
        )
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.1)
    else:
        process.kill()
        process.wait()
        pytest.fail((data / "log").read_text()[-2000:])
    yield process
    process.terminate()
    process.wait(10)


@pytest.fixture
def site_endpoints(zookeeper, tmp_path):
    """Return endpoints for the test, with credentials of all roles."""
    away = "127.0.0.1:1"
    return endpoints.Endpoints(
        kafka=away,
        zookeeper=f"{zookeeper}/{tmp_path.name}",
        postgres=f"postgresql://x@{away}/x",
        airflow=endpoints.AirflowEndpoint(url=f"http://{away}"),
        spark=f"spark://{away}",
        home=tmp_path,
        access=credentials.make(tmp_path / "credentials"),
    )


@pytest.fixture
def admin(site_endpoints):
    with Channel(site_endpoints.zookeeper, site_endpoints.required_credential(Role.ADMIN)) as channel:
        access_lists.apply(channel.kazoo)
        yield channel
