"""A ZooKeeper server for this test run, and an Airflow home that is set before Airflow is first
imported.
"""

import atexit
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from kazoo.client import KazooClient

from sluice_ops.site.java import JAVA

ROOT = Path(__file__).resolve().parents[3]

if "AIRFLOW_HOME" not in os.environ:
    os.environ["AIRFLOW_HOME"] = tempfile.mkdtemp(prefix="sluice-airflow-")
    atexit.register(shutil.rmtree, os.environ["AIRFLOW_HOME"], ignore_errors=True)
os.environ["AIRFLOW__CORE__DAGS_FOLDER"] = str(ROOT / "dags")
os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"
os.environ["AIRFLOW__CORE__UNIT_TEST_MODE"] = "False"
os.environ["SLUICE_HOME"] = os.environ["AIRFLOW_HOME"]
os.environ["SLUICE_SITE"] = str(ROOT / "site.yaml")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # warnings of Airflow and its libraries
    import airflow.api_fastapi.app
    import airflow.dag_processing.dagbag
    import airflow.providers.apache.spark.operators.spark_submit
    import airflow.serialization.serialized_objects  # noqa: F401
    from airflow.utils.db import initdb

    from sluice_airflow.hooks.sluice import shared_channel

WAIT_SECONDS = 90


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session")
def database() -> None:
    """Create Airflow's tables in a database file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        initdb()


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start ZooKeeper from pyspark's jars; return its address."""
    data, port = tmp_path_factory.mktemp("zookeeper"), free_port()
    config = data / "zoo.cfg"
    config.write_text(
        f"dataDir={data}\nclientPort={port}\nclientPortAddress=127.0.0.1\n"
        "tickTime=1000\nadmin.enableServer=false\n"
    )
    jars = Path(pyspark.__file__).parent / "jars/*"
    with (data / "log").open("w") as log:
        command = [
            str(JAVA),
            "-Xmx96m",
            "-XX:+UseSerialGC",
            "-cp",
            str(jars),
            "org.apache.zookeeper.server.ZooKeeperServerMain",
            str(config),
        ]
        process = subprocess.Popen(command, stdout=log, stderr=log)
    deadline = time.monotonic() + WAIT_SECONDS
    while not answers(port):
        if time.monotonic() > deadline or process.poll() is not None:
            process.kill()
            process.wait()
            pytest.fail((data / "log").read_text()[-2000:])
        time.sleep(0.1)
    yield f"127.0.0.1:{port}"
    process.terminate()
    process.wait(20)


@pytest.fixture
def zookeeper(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Give a test its own chroot and home, with the endpoints file that Airflow's side reads."""
    address = f"{server}/{tmp_path.name}"
    client = KazooClient(hosts=server)
    client.start()
    client.ensure_path(f"/{tmp_path.name}")
    client.stop()
    client.close()
    endpoints = {
        "kafka": "127.0.0.1:1",
        "zookeeper": address,
        "postgres": "postgresql://nobody@127.0.0.1:1/none",
        "airflow": {"url": "http://127.0.0.1:1", "user": "admin", "password": "none"},
        "spark": "spark://127.0.0.1:1",
        "home": str(tmp_path),
    }
    (tmp_path / "endpoints.json").write_text(json.dumps(endpoints))
    monkeypatch.setenv("SLUICE_HOME", str(tmp_path))
    monkeypatch.delenv("SLUICE_ENDPOINTS", raising=False)
    yield address
    shared_channel(None).close()
