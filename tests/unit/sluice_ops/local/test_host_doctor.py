"""What the doctor says of a real host: each thing that is amiss, with what to do about it."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sluice_ops.doctor import host_checks
from sluice_ops.doctor.finding import Finding, Verdict
from sluice_ops.main import app
from sluice_ops.model.access import Role
from sluice_ops.site import credentials, jars, spark

SITE = "pipeline: hits\nreplication: 1\nhosts:\n  - {name: h1, address: 127.0.1.1, capacity: {cpu: 1, memory: 1g}}\n"
AWAY = "127.0.0.1:1"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A host's files, and a service that takes connections."""
    (tmp_path / "shared").mkdir()
    (tmp_path / "site.yaml").write_text(SITE)
    monkeypatch.setattr("sluice_ops.doctor.reach.SECONDS", 1.0)
    monkeypatch.setenv("SLUICE_SITE", str(tmp_path / "site.yaml"))
    monkeypatch.setenv("SLUICE_HOME", str(tmp_path))
    monkeypatch.delenv("SLUICE_ENDPOINTS", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as service:
        keep_endpoints(tmp_path, kafka=f"127.0.0.1:{service.getsockname()[1]},{AWAY}")
        yield tmp_path


def keep_endpoints(folder: Path, **changed: object) -> None:
    airflow = {"url": f"http://{AWAY}", "user": "admin", "password": "x"}
    found = {
        "kafka": AWAY,
        "zookeeper": f"{AWAY}/sluice/hits",
        "postgres": f"postgresql://x:secret@{AWAY}/x",
        "airflow": airflow,
    }
    found |= {"spark": f"spark://{AWAY}", "home": str(folder / "shared")} | changed
    (folder / "endpoints.json").write_text(json.dumps(found))


def look(machine: Path, host: str = "h1") -> dict[str, list[Finding]]:
    found: dict[str, list[Finding]] = {}
    for finding in host_checks.examine(host, machine / "site.yaml", machine):
        found.setdefault(finding.thing, []).append(finding)
    return found


def test_what_is_well_is_said_and_what_is_away_has_advice(machine: Path) -> None:
    found = look(machine)
    for thing in ("site", "java", "packages", "address", "home", "shared folder", "disk"):
        assert [finding.verdict for finding in found[thing]] == [Verdict.OK], found[thing]
    for thing in ("zookeeper", "postgres", "spark"):
        (finding,) = found[thing]
        assert finding.verdict is Verdict.BAD
        assert "endpoints file" in finding.advice
        assert "secret" not in finding.sentence


def test_how_tiers_would_start_sooner_is_said(machine: Path) -> None:
    (finding,) = look(machine)["class data"]
    assert (finding.verdict, "sluice.commands.class_data" in finding.advice) == (Verdict.NOTE, True)
    for cache in (spark.cache_of_tiers(machine / "shared"), spark.cache_of_workers(machine / "shared")):
        assert str(cache) in finding.sentence
        cache.parent.mkdir(exist_ok=True)
        cache.touch()
    assert [finding.verdict for finding in look(machine)["class data"]] == [Verdict.OK]


@pytest.mark.parametrize(
    ("key", "why", "verdict"),
    [
        ("", None, "not divided: the site file gives this host no `network`"),
        (
            "network: {interface: eth7, mbit: 1000}, ",
            "there is no cable",
            "eth7 cannot be divided: there is no cable",
        ),
        (
            "network: {interface: eth7, mbit: 1000}, ",
            None,
            "an agent of root divides eth7, 1000 mbit, by quantum.network",
        ),
    ],
)
def test_whether_the_network_is_divided_is_said(
    machine: Path, monkeypatch: pytest.MonkeyPatch, key: str, why: str | None, verdict: str
) -> None:
    monkeypatch.setattr(host_checks.network, "missing_requirement", lambda _link: why)
    (machine / "site.yaml").write_text(SITE.replace("capacity:", f"{key}capacity:"))
    (finding,) = look(machine)["network"]
    assert finding.sentence == verdict
    assert finding.verdict is (Verdict.OK if key and why is None else Verdict.NOTE)


@pytest.mark.parametrize(
    ("given", "why", "verdict", "sentence"),
    [
        (
            "capacity: {cpu: 1",
            None,
            Verdict.NOTE,
            "shared by quantum.cpu: the site file gives this host no `cores: own`",
        ),
        (
            "cores: own, capacity: {cpu: 1",
            "there is no tree",
            Verdict.NOTE,
            "slots cannot have cores of their own: there is no tree",
        ),
        (
            "cores: own, capacity: {cpu: 9000",
            None,
            Verdict.NOTE,
            "not every slot can have cores of its own: capacity.cpu is 9000, but the agent may use",
        ),
        (
            "cores: own, capacity: {cpu: 1",
            None,
            Verdict.OK,
            "slots with a whole quantum.cpu have cores of their own",
        ),
    ],
)
def test_whether_slots_have_cores_of_their_own_is_said(
    machine: Path,
    monkeypatch: pytest.MonkeyPatch,
    given: str,
    why: str | None,
    verdict: Verdict,
    sentence: str,
) -> None:
    monkeypatch.setattr(host_checks.cpusets, "missing_requirement", lambda _trees: why)
    (machine / "site.yaml").write_text(SITE.replace("capacity: {cpu: 1", given))
    (finding,) = look(machine)["cores"]
    assert (finding.verdict, finding.sentence.startswith(sentence)) == (verdict, True), finding.sentence


def test_servers_that_stand_by_for_each_other_are_a_note_while_one_answers(machine: Path) -> None:
    assert [finding.verdict for finding in look(machine)["kafka"]] == [Verdict.OK, Verdict.NOTE]


def test_the_address_has_to_be_one_of_this_machine(machine: Path) -> None:
    (machine / "site.yaml").write_text(SITE.replace("127.0.1.1", "203.0.113.7"))
    (finding,) = look(machine)["address"]
    assert (finding.verdict, "203.0.113.7" in finding.sentence) == (Verdict.BAD, True)


@pytest.mark.parametrize(
    ("given", "verdict"), [("memory: 900000g", Verdict.BAD), ("memory: 1g, cpu: 9000", Verdict.NOTE)]
)
def test_a_host_cannot_give_what_the_machine_does_not_have(
    machine: Path, given: str, verdict: Verdict
) -> None:
    capacity = given if "cpu" in given else f"cpu: 1, {given}"
    (machine / "site.yaml").write_text(SITE.replace("cpu: 1, memory: 1g", capacity))
    (finding,) = look(machine)["capacity"]
    assert finding.verdict is verdict
    assert finding.advice


def test_a_shared_folder_that_is_not_mounted_is_bad(machine: Path) -> None:
    (machine / "shared").rmdir()
    assert look(machine)["shared folder"][0].verdict is Verdict.BAD


def test_the_connector_has_to_be_in_the_shared_folder_as_locked(machine: Path) -> None:
    assert [finding.verdict for finding in look(machine)["jars"]] == [Verdict.BAD]
    connector = machine / "shared" / "jars" / "connector"
    connector.mkdir(parents=True)
    for jar in jars.locked(jars.LOCK.read_text()):
        (connector / jar.file).write_text("something else")
    assert "differs from its checksum" in look(machine)["jars"][0].sentence


def test_a_java_that_does_not_run_is_said_with_what_brings_it(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert look(machine)["java"][0].sentence.startswith("Java 25.")
    monkeypatch.setattr("sluice_ops.site.java.JAVA", machine / "nothing")
    found = look(machine)["java"][0]
    assert (found.verdict, "make install" in found.advice) == (Verdict.BAD, True)


def test_what_cannot_be_read_is_a_finding_and_no_end_of_the_others(machine: Path) -> None:
    for jar in jars.locked(jars.LOCK.read_text()):
        (machine / "shared" / "jars" / "connector" / jar.file).mkdir(parents=True)
    found = look(machine)
    assert "run the doctor as the user that the agent runs as" in found["jars"][0].advice
    assert found["java"][0].verdict is Verdict.OK
    (machine / "endpoints.json").unlink()
    (machine / "endpoints.json").mkdir()
    assert f"cannot read {machine / 'endpoints.json'}: " in look(machine)["endpoints"][0].sentence


def test_without_the_two_files_nothing_else_is_looked_at(machine: Path) -> None:
    (machine / "endpoints.json").write_text("{}")
    assert [thing for thing, found in look(machine).items() if found[0].verdict is Verdict.BAD] == [
        "endpoints"
    ]
    found = look(machine, "h7")
    assert found.keys() == {"site"}
    assert "which knows h1" in found["site"][0].sentence


def test_the_command_speaks_json_and_ends_with_1_when_something_is_bad(machine: Path) -> None:
    del machine
    done = CliRunner().invoke(app, ["doctor", "--host", "h1", "--json"])
    said = json.loads(done.stdout)
    assert (done.exit_code, said["ok"]) == (1, False)
    assert {"zookeeper", "java", "shared folder"} <= {finding["thing"] for finding in said["findings"]}
    assert CliRunner().invoke(app, ["doctor", "--host", "h1", "--memory"]).exit_code == 2


def test_a_host_needs_its_two_credentials_and_not_the_admins(machine: Path) -> None:
    (open_to_all,) = look(machine)["access"]
    assert (open_to_all.verdict, "names no roles" in open_to_all.sentence) == (Verdict.NOTE, True)
    made = credentials.make(machine / "credentials")
    keep_endpoints(machine, access=made.model_dump(mode="json"))
    (admins,) = look(machine)["access"]
    assert (admins.verdict, "the admin's credential is in" in admins.sentence) == (Verdict.NOTE, True)
    (made.credentials / Role.ADMIN).unlink()
    assert [finding.verdict for finding in look(machine)["access"]] == [Verdict.OK]
    (made.credentials / Role.DRIVER).unlink()
    (missing,) = look(machine)["access"]
    assert (missing.verdict, "credentials/driver does not exist" in missing.sentence) == (Verdict.BAD, True)


def test_where_kafka_asks_for_users_the_drivers_password_has_to_be_here(machine: Path) -> None:
    (open_to_all,) = look(machine)["kafka's users"]
    assert open_to_all.verdict is Verdict.NOTE
    keep_endpoints(machine, kafka=f"ssl://{AWAY}?ca=/c/ca.pem&users={machine}")
    (missing,) = look(machine)["kafka's users"]
    assert (missing.verdict, "driver.properties does not exist" in missing.sentence) == (Verdict.BAD, True)
    (machine / "driver.properties").write_text("password=x1\n")
    (machine / "driver.properties").chmod(0o600)
    assert [finding.verdict for finding in look(machine)["kafka's users"]] == [Verdict.OK]
