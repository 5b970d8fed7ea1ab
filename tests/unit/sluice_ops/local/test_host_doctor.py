"""The doctor's findings on a real host, each with its advice."""

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

SITE = (
    "pipeline: hits\nreplication: 1\nhosts:\n  - {name: h1, address: 127.0.1.1, capacity: {cpu: "
    "1, memory: 1g}}\n"
)
AWAY = "127.0.0.1:1"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The files of a host, and a service that accepts connections."""
    (tmp_path / "shared").mkdir()
    (tmp_path / "site.yaml").write_text(SITE)
    monkeypatch.setattr("sluice_ops.doctor.reach.SECONDS", 1.0)
    monkeypatch.setenv("SLUICE_SITE", str(tmp_path / "site.yaml"))
    monkeypatch.setenv("SLUICE_HOME", str(tmp_path))
    monkeypatch.delenv("SLUICE_ENDPOINTS", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as service:
        write_endpoints(tmp_path, kafka=f"127.0.0.1:{service.getsockname()[1]},{AWAY}")
        yield tmp_path


def write_endpoints(folder: Path, **changed: object) -> None:
    airflow = {"url": f"http://{AWAY}", "user": "admin", "password": "x"}
    content = {
        "kafka": AWAY,
        "zookeeper": f"{AWAY}/sluice/hits",
        "postgres": f"postgresql://x:secret@{AWAY}/x",
        "airflow": airflow,
    }
    content |= {"spark": f"spark://{AWAY}", "home": str(folder / "shared")} | changed
    (folder / "endpoints.json").write_text(json.dumps(content))


def findings_by_thing(machine: Path, host: str = "h1") -> dict[str, list[Finding]]:
    findings: dict[str, list[Finding]] = {}
    for finding in host_checks.examine(host, machine / "site.yaml", machine):
        findings.setdefault(finding.thing, []).append(finding)
    return findings


def test_good_checks_are_ok_and_services_away_have_advice(machine: Path) -> None:
    findings = findings_by_thing(machine)
    for thing in ("site", "java", "packages", "address", "home", "shared folder", "disk"):
        assert [finding.verdict for finding in findings[thing]] == [Verdict.OK], findings[thing]
    for thing in ("zookeeper", "postgres", "spark"):
        (finding,) = findings[thing]
        assert finding.verdict is Verdict.BAD
        assert "endpoints file" in finding.advice
        assert "secret" not in finding.sentence


def test_missing_class_data_is_a_note_with_advice(machine: Path) -> None:
    (finding,) = findings_by_thing(machine)["class data"]
    assert (finding.verdict, "sluice.commands.class_data" in finding.advice) == (Verdict.NOTE, True)
    for cache in (spark.cache_of_tiers(machine / "shared"), spark.cache_of_workers(machine / "shared")):
        assert str(cache) in finding.sentence
        cache.parent.mkdir(exist_ok=True)
        cache.touch()
    assert [finding.verdict for finding in findings_by_thing(machine)["class data"]] == [Verdict.OK]


@pytest.mark.parametrize(
    ("key", "missing", "verdict"),
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
def test_the_division_of_the_network_is_reported(
    machine: Path, monkeypatch: pytest.MonkeyPatch, key: str, missing: str | None, verdict: str
) -> None:
    monkeypatch.setattr(host_checks.network, "missing_requirement", lambda _link: missing)
    (machine / "site.yaml").write_text(SITE.replace("capacity:", f"{key}capacity:"))
    (finding,) = findings_by_thing(machine)["network"]
    assert finding.sentence == verdict
    assert finding.verdict is (Verdict.OK if key and missing is None else Verdict.NOTE)


@pytest.mark.parametrize(
    ("settings", "missing", "verdict", "sentence"),
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
def test_cores_of_slots_are_reported(
    machine: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings: str,
    missing: str | None,
    verdict: Verdict,
    sentence: str,
) -> None:
    monkeypatch.setattr(host_checks.cpusets, "missing_requirement", lambda _trees: missing)
    (machine / "site.yaml").write_text(SITE.replace("capacity: {cpu: 1", settings))
    (finding,) = findings_by_thing(machine)["cores"]
    assert (finding.verdict, finding.sentence.startswith(sentence)) == (verdict, True), finding.sentence


def test_a_replica_that_is_away_is_a_note_while_another_answers(machine: Path) -> None:
    assert [finding.verdict for finding in findings_by_thing(machine)["kafka"]] == [Verdict.OK, Verdict.NOTE]


def test_the_address_must_belong_to_this_machine(machine: Path) -> None:
    (machine / "site.yaml").write_text(SITE.replace("127.0.1.1", "203.0.113.7"))
    (finding,) = findings_by_thing(machine)["address"]
    assert (finding.verdict, "203.0.113.7" in finding.sentence) == (Verdict.BAD, True)


@pytest.mark.parametrize(
    ("settings", "verdict"), [("memory: 900000g", Verdict.BAD), ("memory: 1g, cpu: 9000", Verdict.NOTE)]
)
def test_a_capacity_above_the_machine_is_reported(machine: Path, settings: str, verdict: Verdict) -> None:
    capacity = settings if "cpu" in settings else f"cpu: 1, {settings}"
    (machine / "site.yaml").write_text(SITE.replace("cpu: 1, memory: 1g", capacity))
    (finding,) = findings_by_thing(machine)["capacity"]
    assert finding.verdict is verdict
    assert finding.advice


def test_a_shared_folder_that_is_not_mounted_is_bad(machine: Path) -> None:
    (machine / "shared").rmdir()
    assert findings_by_thing(machine)["shared folder"][0].verdict is Verdict.BAD


def test_the_connector_in_the_shared_folder_must_match_its_checksum(machine: Path) -> None:
    assert [finding.verdict for finding in findings_by_thing(machine)["jars"]] == [Verdict.BAD]
    connector = machine / "shared" / "jars" / "connector"
    connector.mkdir(parents=True)
    for jar in jars.locked(jars.LOCK.read_text()):
        (connector / jar.file).write_text("something else")
    assert "differs from its checksum" in findings_by_thing(machine)["jars"][0].sentence


def test_a_missing_java_is_reported_with_the_command_to_install_it(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert findings_by_thing(machine)["java"][0].sentence.startswith("Java 25.")
    monkeypatch.setattr("sluice_ops.site.java.JAVA", machine / "nothing")
    finding = findings_by_thing(machine)["java"][0]
    assert (finding.verdict, "install Sluice with" in finding.advice) == (Verdict.BAD, True)


def test_an_unreadable_file_is_a_finding_and_other_checks_still_run(machine: Path) -> None:
    for jar in jars.locked(jars.LOCK.read_text()):
        (machine / "shared" / "jars" / "connector" / jar.file).mkdir(parents=True)
    findings = findings_by_thing(machine)
    assert "run the doctor as the user that the agent runs as" in findings["jars"][0].advice
    assert findings["java"][0].verdict is Verdict.OK
    (machine / "endpoints.json").unlink()
    (machine / "endpoints.json").mkdir()
    assert (
        f"cannot read {machine / 'endpoints.json'}: " in findings_by_thing(machine)["endpoints"][0].sentence
    )


def test_without_site_file_or_endpoints_no_other_check_runs(machine: Path) -> None:
    (machine / "endpoints.json").write_text("{}")
    assert [
        thing for thing, findings in findings_by_thing(machine).items() if findings[0].verdict is Verdict.BAD
    ] == ["endpoints"]
    findings = findings_by_thing(machine, "h7")
    assert findings.keys() == {"site"}
    assert "which knows h1" in findings["site"][0].sentence


def test_the_command_prints_json_and_exits_1_for_a_bad_finding(machine: Path) -> None:
    del machine
    done = CliRunner().invoke(app, ["doctor", "--host", "h1", "--json"])
    output = json.loads(done.stdout)
    assert (done.exit_code, output["ok"]) == (1, False)
    assert {"zookeeper", "java", "shared folder"} <= {finding["thing"] for finding in output["findings"]}
    assert CliRunner().invoke(app, ["doctor", "--host", "h1", "--memory"]).exit_code == 2


def test_a_host_needs_its_two_credentials_and_not_the_admins(machine: Path) -> None:
    (open_to_all,) = findings_by_thing(machine)["access"]
    assert (open_to_all.verdict, "names no roles" in open_to_all.sentence) == (Verdict.NOTE, True)
    access = credentials.make(machine / "credentials")
    write_endpoints(machine, access=access.model_dump(mode="json"))
    (admins,) = findings_by_thing(machine)["access"]
    assert (admins.verdict, "the admin's credential is in" in admins.sentence) == (Verdict.NOTE, True)
    (access.credentials / Role.ADMIN).unlink()
    assert [finding.verdict for finding in findings_by_thing(machine)["access"]] == [Verdict.OK]
    (access.credentials / Role.DRIVER).unlink()
    (missing,) = findings_by_thing(machine)["access"]
    assert (missing.verdict, "credentials/driver does not exist" in missing.sentence) == (Verdict.BAD, True)


def test_a_host_needs_the_drivers_password_if_kafka_has_users(machine: Path) -> None:
    (open_to_all,) = findings_by_thing(machine)["kafka's users"]
    assert open_to_all.verdict is Verdict.NOTE
    write_endpoints(machine, kafka=f"ssl://{AWAY}?ca=/c/ca.pem&users={machine}")
    (missing,) = findings_by_thing(machine)["kafka's users"]
    assert (missing.verdict, "driver.properties does not exist" in missing.sentence) == (Verdict.BAD, True)
    (machine / "driver.properties").write_text("password=x1\n")
    (machine / "driver.properties").chmod(0o600)
    assert [finding.verdict for finding in findings_by_thing(machine)["kafka's users"]] == [Verdict.OK]
