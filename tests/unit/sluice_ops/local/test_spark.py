"""Master, workers and drivers authenticate each other, and their connections are encrypted."""

import stat

import pytest

from sluice_ops.local.layout import Layout
from sluice_ops.local.services import spark_master as master
from sluice_ops.site import spark
from sluice_ops.site.endpoints import AirflowEndpoint, Endpoints

ON = {
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    "spark.network.crypto.cipher": "AES/GCM/NoPadding",
    "spark.network.crypto.saslFallback": "false",
}


@pytest.fixture
def secret(layout: Layout) -> str:
    return layout.secrets().spark


def test_the_master_authenticates_and_encrypts(layout: Layout, secret: str) -> None:
    service = master.service(layout)
    service.prepare()
    file = layout.conf / "spark-master.conf"
    assert str(file) in service.program.command
    properties = dict(line.split(" ", 1) for line in file.read_text().splitlines())
    assert properties.items() >= (ON | {"spark.authenticate.secret": secret}).items()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert secret not in " ".join(service.program.command)


def test_a_worker_authenticates_and_encrypts(secret: str) -> None:
    command = spark.worker(secret=secret)
    assert {f"-D{key}={value}" for key, value in ON.items()} <= set(command)
    assert secret not in " ".join(command), "the secret is in the environment"


def test_a_driver_authenticates_and_encrypts(layout: Layout, secret: str) -> None:
    known = Endpoints(
        kafka="127.0.0.1:1",
        zookeeper="127.0.0.1:1/x",
        postgres="postgresql://x@127.0.0.1:1/x",
        airflow=AirflowEndpoint(url="http://127.0.0.1:1", user="x", password="x"),
        spark="spark://127.0.0.1:1",
        home=layout.home,
        spark_secret=secret,
    )
    assert known.spark_settings.items() >= (ON | {"spark.authenticate.secret": secret}).items()
