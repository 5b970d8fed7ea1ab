"""The endpoints file: what cannot be used is refused, with the key and the way out."""

import json
from pathlib import Path

import pytest

from ops.endpoints import EndpointsError, load
from ops.model.access import Role

GOOD = {
    "kafka": "k1:9092",
    "zookeeper": "z1:2181, z2:2181/sluice/hits",
    "postgres": "postgresql://x@db/x",
    "airflow": {"url": "http://a:8080", "user": "admin", "password": "x"},
    "spark": "spark://s1:7077",
    "home": "/srv/sluice",
}


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "endpoints.json"
    monkeypatch.setenv("SLUICE_ENDPOINTS", str(path))
    return path


def refused(path: Path) -> str:
    with pytest.raises(EndpointsError) as told:
        load()
    return str(told.value).removeprefix(f"{path}")


@pytest.mark.parametrize("address", ["", "z1:2181:/x", "z1:port/x", ":2181", "z1:99999/x"])
def test_an_address_of_zookeeper_that_nothing_could_connect_to_is_refused(file: Path, address: str) -> None:
    file.write_text(json.dumps(GOOD))
    load()
    file.write_text(json.dumps({**GOOD, "zookeeper": address}))
    assert refused(file) == f": zookeeper: {address!r} is no address of ZooKeeper: write it like z1:2181,z2:2181,z3:2181/sluice/hits"


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"kafak": "k1:9092"}, ": kafak: there is no such key, did you mean kafka? known here: "),
        ({"home": 5}, ": home: write the path of a file or folder; it is 5"),
        ({"postgres": "db:7391"}, ": postgres: write it like postgresql://USER:PASSWORD@HOST:5432/sluice"),
        ({"airflow": "http://a:8080"}, ": airflow: write keys and values below it"),
    ],
)
def test_what_is_wrong_is_said_by_its_key_with_the_way_out_and_no_secret(file: Path, wrong: dict[str, object], why: str) -> None:
    file.write_text(json.dumps({**GOOD, **wrong}))
    assert (said := refused(file)).startswith(why)
    assert "7391" not in said


def test_a_file_of_tls_that_is_not_there_is_named(file: Path, tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    roles = {role: f"{role}:x" for role in Role}
    file.write_text(json.dumps({**GOOD, "access": {"credentials": str(tmp_path), "roles": roles, "tls": {"ca": str(ca)}}}))
    with pytest.raises(EndpointsError, match=rf"^access\.tls\.ca: {ca} is not there"):
        load().credential(Role.AGENT)
    ca.touch()
    assert load().credential(Role.AGENT) is not None


def test_what_is_no_json_or_cannot_be_read_is_refused_too(file: Path) -> None:
    for damage in (b"{", b"\xff\xfe"):
        file.write_bytes(damage)
        assert refused(file).startswith(": Invalid JSON")
    file.unlink()
    with pytest.raises(FileNotFoundError, match="make up"):
        load()
    file.mkdir()
    assert " cannot be read by user " in refused(file)
