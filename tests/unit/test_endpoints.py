"""The endpoints file: an unusable value is refused, with its key and the correct form."""

import json
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from sluice_ops.model.access import Role
from sluice_ops.site.database import password_line, without_user
from sluice_ops.site.endpoints import EndpointsError, load
from sluice_ops.site.files import write_private

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
    with pytest.raises(EndpointsError) as error:
        load()
    return str(error.value).removeprefix(f"{path}")


@pytest.mark.parametrize("address", ["", "z1:2181:/x", "z1:port/x", ":2181", "z1:99999/x"])
def test_an_unusable_address_of_zookeeper_is_refused(file: Path, address: str) -> None:
    file.write_text(json.dumps(GOOD))
    load()
    file.write_text(json.dumps({**GOOD, "zookeeper": address}))
    assert refused(file) == (
        f": zookeeper: {address!r} is not an address of ZooKeeper: "
        "write it like z1:2181,z2:2181,z3:2181/sluice/hits"
    )


@pytest.mark.parametrize(
    ("wrong_values", "reason"),
    [
        ({"kafak": "k1:9092"}, ": kafak: unknown key; did you mean kafka? known keys: "),
        ({"home": 5}, ": home: write the path of a file or folder; the value is 5"),
        (
            {"postgres": "db:7391"},
            ": postgres: this is not an address of PostgreSQL: write it like postgresql://HOST:5432/",
        ),
        ({"airflow": "http://a:8080"}, ": airflow: write keys and values below this key"),
    ],
)
def test_a_wrong_value_is_refused_with_its_key_and_without_secrets(
    file: Path, wrong_values: dict[str, object], reason: str
) -> None:
    file.write_text(json.dumps({**GOOD, **wrong_values}))
    assert (message := refused(file)).startswith(reason)
    assert "7391" not in message


def test_a_missing_tls_file_is_named(file: Path, tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    roles = {role: f"{role}:x" for role in Role}
    file.write_text(
        json.dumps({**GOOD, "access": {"credentials": str(tmp_path), "roles": roles, "tls": {"ca": str(ca)}}})
    )
    with pytest.raises(EndpointsError, match=rf"^access\.tls\.ca: {ca} does not exist"):
        load().credential(Role.AGENT)
    ca.touch()
    assert load().credential(Role.AGENT) is not None


def test_a_file_without_json_or_without_access_is_refused(file: Path) -> None:
    for damage in (b"{", b"\xff\xfe"):
        file.write_bytes(damage)
        assert refused(file).startswith(": Invalid JSON")
    file.unlink()
    with pytest.raises(FileNotFoundError, match="sluice up"):
        load()
    file.mkdir()
    assert refused(file).endswith(
        f" cannot read {file}: Is a directory; make the file readable for this user"
    )


def test_each_role_uses_postgres_with_a_password_file_for_libpq(file: Path, tmp_path: Path) -> None:
    users = tmp_path / "postgres users"
    address = f"postgresql://db1,db2:5433/sluice?sslmode=verify-full&users={users}"
    file.write_text(json.dumps({**GOOD, "postgres": address}))
    with pytest.raises(
        EndpointsError, match=r"driver does not exist.*copy it from the machine .* `sluice access --postgres`"
    ):
        load().postgres_as(Role.DRIVER)
    write_private(users / "driver", password_line("sluice_driver", "s3cret"))
    address = load().postgres_as(Role.DRIVER)
    assert conninfo_to_dict(address) == {
        "host": "db1,db2", "port": ",5433", "dbname": "sluice", "user": "sluice_driver",
        "sslmode": "verify-full", "passfile": str(users / "driver"),
    }  # fmt: skip
    (users / "driver").chmod(0o640)
    with pytest.raises(EndpointsError, match=r"libpq ignores .* other users can read it; run: chmod 600"):
        load().postgres_as(Role.DRIVER)


def test_an_address_that_names_its_user_is_used_unchanged(file: Path) -> None:
    before = "postgresql://sluice:s3cret@db:5432/sluice?sslmode=require"
    file.write_text(json.dumps({**GOOD, "postgres": before}))
    assert {load().postgres_as(role) for role in Role} == {before}
    after = without_user(before, Path("/etc/sluice/postgres-users"))
    assert after == "postgresql://db:5432/sluice?sslmode=require&users=/etc/sluice/postgres-users"


@pytest.mark.parametrize(
    "address", ["postgresql://sluice:s3cret@db/sluice?users=/x", "postgresql://db/sluice?users=x"]
)
def test_an_address_of_postgres_has_a_user_or_users_of_roles_not_both(file: Path, address: str) -> None:
    file.write_text(json.dumps({**GOOD, "postgres": address}))
    assert "must name no user, and the folder's path must begin with /" in (message := refused(file))
    assert "s3cret" not in message
