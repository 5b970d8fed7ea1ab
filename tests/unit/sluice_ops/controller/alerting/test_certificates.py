"""The ends of the certificates for every service are known, if this machine has the files."""

import time
from pathlib import Path

import pytest
from authority import Authority

from sluice_ops.controller.alerting.certificates import READ_SECONDS, Certificates
from sluice_ops.site.endpoints import Endpoints

HOUR = 3600


def endpoints(**more):
    fields = {
        "airflow": {"url": "http://a"},
        "spark": "spark://s:7077",
        "home": "/srv",
        "zookeeper": "z:2181",
    }
    return Endpoints(**{**fields, "kafka": "k:9092", "postgres": "postgresql://u:p@db/x", **more})


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path, "ca")


def test_the_files_for_kafka_postgresql_and_zookeeper_are_watched(authority):
    own, key = authority.sign("h1")
    ca = str(authority.file)
    where = endpoints(
        kafka=f"ssl://k:9093?ca={ca}&certificate={own}",
        postgres=f"postgresql://u:p@db/x?sslmode=verify-full&sslrootcert={ca}&sslcert={own}&sslkey={key}",
        access={"credentials": "/c", "roles": {}, "tls": {"ca": "/z/ca.pem", "certificate": "/z/h1.pem"}},
    )
    assert where.certificates == ("/z/ca.pem", "/z/h1.pem", ca, own)
    ends = Certificates(where.certificates)()
    assert {*ends} == {ca, own}, "a file of another machine is left out"
    assert all(0 < end - time.time() <= HOUR for end in ends.values())


def test_without_tls_or_with_the_machines_authorities_none_is_watched():
    plain = "postgresql://u:p@db/x?sslmode=verify-full&sslrootcert=system"
    assert endpoints(postgres=plain).certificates == ()


def test_a_renewed_file_is_read_again(authority, tmp_path):
    now = [0.0]
    file = tmp_path / "later.pem"
    read = Certificates((str(file),), clock=lambda: now[0])
    assert read() == {}
    file.write_bytes(Path(authority.file).read_bytes())
    assert read() == {}
    now[0] = READ_SECONDS
    assert [*read()] == [str(file)]
