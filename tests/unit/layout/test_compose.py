"""docker-compose.yaml: it matches the Compose schema, and every file and module that it names
exists.
"""

import importlib.util
import json
import os
import re
import signal
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from sluice_ops.local import compose as jobs
from sluice_ops.local.layout import Layout, Ports
from sluice_ops.local.services import airflow
from sluice_ops.model.access import Role
from sluice_ops.model.kafka_access import User
from sluice_ops.site import endpoints
from sluice_ops.site.brokers import brokers, with_user
from sluice_ops.site.jars import LOCK, locked
from sluice_ops.site.site_file import Site, load

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    parsed: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yaml").read_text())
    return parsed


def commands(compose: dict[str, Any]) -> Iterator[list[str]]:
    yield from (service["command"] for service in compose["services"].values() if "command" in service)


def test_the_file_matches_the_compose_specification(compose: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator(
        json.loads(Path(__file__).with_name("compose.schema.json").read_text())
    ).validate(compose)


def test_the_schema_would_notice_a_misspelt_key(compose: dict[str, Any]) -> None:
    schema = json.loads(Path(__file__).with_name("compose.schema.json").read_text())
    misspelt = json.loads(json.dumps(compose))
    misspelt["services"]["kafka"]["enviroment"] = {}
    with pytest.raises(jsonschema.ValidationError, match="enviroment"):
        jsonschema.Draft202012Validator(schema).validate(misspelt)


def test_every_part_of_the_system_has_a_service(compose: dict[str, Any]) -> None:
    expected = {
        "zookeeper",
        "kafka",
        "postgres",
        "controller",
        "spark-1",
        "spark-2",
        "h1",
        "h2",
        "h3",
        "tiers",
        "prometheus",
    }
    airflow = {"airflow-api", "airflow-scheduler", "airflow-dags", "airflow-triggerer", "airflow-tables"}
    assert expected | airflow <= compose["services"].keys()


def test_dependencies_and_volumes_of_services_are_declared(compose: dict[str, Any]) -> None:
    services = compose["services"]
    for name, service in services.items():
        for other, dependency in service.get("depends_on", {}).items():
            assert other in services, f"{name} waits for {other}"
            if dependency["condition"] == "service_healthy":
                assert "healthcheck" in services[other], (
                    f"{name} waits for the health of {other}, which has no health check"
                )
        sources = {
            volume.split(":")[0] for volume in service.get("volumes", []) if not volume.startswith("$")
        }
        assert {source for source in sources if not source.startswith("./")} <= compose["volumes"].keys(), (
            name
        )
        assert all((ROOT / source).exists() for source in sources if source.startswith("./")), name


def test_each_python_module_that_is_started_exists(compose: dict[str, Any]) -> None:
    text = "\n".join(" ".join(words) for words in commands(compose))
    modules = set(re.findall(r"python,? -m,? ([a-z_.]+)", text))
    assert {"sluice_ops.controller", "sluice_ops.local.compose", "sluice.commands.publish"} <= modules
    assert all(importlib.util.find_spec(module) for module in modules)


def test_each_airflow_setting_is_one_that_airflow_knows(compose: dict[str, Any], tmp_path: Path) -> None:
    spec = importlib.util.find_spec("airflow")
    assert spec is not None
    assert spec.origin is not None
    known = yaml.load(
        (Path(spec.origin).parent / "config_templates" / "config.yml").read_text(), yaml.CSafeLoader
    )
    layout = Layout(home=tmp_path, ports=Ports.above(40000), site=ROOT / "site.yaml")
    embedded = airflow.environment(layout)
    for name in compose["services"]["airflow-api"]["environment"] | embedded:
        if name.startswith("AIRFLOW__"):
            _, section, key = name.split("__")
            assert key.lower() in known[section.lower()]["options"], name


def test_no_service_is_privileged_and_each_has_a_health_check(compose: dict[str, Any]) -> None:
    waits = {other for service in compose["services"].values() for other in service.get("depends_on", {})}
    jobs_of_a_start = {
        name for name in waits | {"tiers"} if compose["services"][name]["restart"] == "on-failure"
    }
    for name, service in compose["services"].items():
        assert "privileged" not in service, name
        assert ("healthcheck" in service) is (name not in jobs_of_a_start), name
        assert {"max-size", "max-file"} <= service["logging"]["options"].keys(), (
            f"{name}: its log has no size limit"
        )


def test_only_services_awaited_to_complete_restart_on_failure(compose: dict[str, Any]) -> None:
    for service in compose["services"].values():
        for other, dependency in service.get("depends_on", {}).items():
            ended = dependency["condition"] == "service_completed_successfully"
            assert (compose["services"][other]["restart"] == "on-failure") is ended, other


def test_each_host_of_the_site_file_has_a_container(compose: dict[str, Any]) -> None:
    site: Site = load(ROOT / "deploy/compose/site.yaml")
    started = [words[-1] for words in commands(compose) if "deploy/compose/host.sh" in words]
    assert [host.name for host in site.hosts] == [host.address for host in site.hosts] == started
    assert site.ec2.max_instances == 0, "EC2 instances cannot reach the containers"


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SLUICE_SITE", str(ROOT / "deploy/compose/site.yaml"))
    monkeypatch.setenv("SLUICE_HOME", "/var/lib/sluice")
    monkeypatch.setattr(jobs, "HERE", tmp_path / "hosts")
    jobs.make_keys(tmp_path)
    return tmp_path


def test_a_second_start_finds_the_same_passwords(keys: Path) -> None:
    before = {path: path.read_bytes() for path in keys.rglob("*") if path.is_file()}
    jobs.make_keys(keys)
    assert {path: path.read_bytes() for path in keys.rglob("*") if path.is_file()} == before
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in before)


def test_each_service_has_the_credentials_of_its_roles_and_no_others(
    keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLUICE_ENDPOINTS", str(keys / "hosts" / "endpoints.json"))
    loaded = endpoints.load()
    assert loaded.required_credential(Role.AGENT) is not None
    assert brokers(with_user(loaded.kafka, User.DRIVER)).client["sasl.password"]
    for role in set(Role) - {Role.AGENT, Role.DRIVER}:
        with pytest.raises(endpoints.EndpointsError):
            loaded.required_credential(role)
    with pytest.raises(endpoints.EndpointsError):
        loaded.kafka_as(User.PUBLISHER)
    assert loaded.postgres_as(Role.DRIVER).startswith("postgresql://sluice_driver@postgres:5432/")
    with pytest.raises(endpoints.EndpointsError):
        loaded.postgres_as(Role.PUBLISHER)


def test_only_two_jobs_have_the_keys_of_the_admin(compose: dict[str, Any]) -> None:
    users = {
        name
        for name, service in compose["services"].items()
        if any(volume.startswith("keys-admin:") for volume in service.get("volumes", []))
    }
    assert users == {"keys", "services"}


def test_kafka_is_the_version_that_the_embedded_platform_runs(compose: dict[str, Any]) -> None:
    broker = next(jar for jar in locked(LOCK.read_text()) if jar.name == "kafka_2.13")
    assert compose["services"]["kafka"]["image"] == f"${{KAFKA_IMAGE:-apache/kafka:{broker.revision}}}"


def test_zookeeper_keeps_its_log_and_audits_refusals(compose: dict[str, Any]) -> None:
    lines = dict(line.split("=", 1) for line in (ROOT / "deploy/compose/zoo.cfg").read_text().splitlines())
    assert lines["audit.enable"] == "true"
    mounted = {volume.split(":")[1] for volume in compose["services"]["zookeeper"]["volumes"]}
    assert {lines["dataDir"], lines["dataLogDir"]} <= mounted, (
        "after `down`, ZooKeeper would lose all writes since its last snapshot"
    )


def test_a_host_restarts_its_agent_and_stops_all_units_at_sigterm(tmp_path: Path) -> None:
    calls, stub = tmp_path / "calls", tmp_path / "python"
    stub.write_text(
        f'#!/bin/sh\necho "$$ $*" >> {calls}\ncase "$*" in *--stop-all) exit 0;; esac\nexec sleep 60\n'
    )
    stub.chmod(0o755)
    calls.touch()

    def called(number: int) -> str:
        deadline = time.monotonic() + 20
        while len(lines := calls.read_text().splitlines()) < number:
            assert time.monotonic() < deadline, lines
            time.sleep(0.05)
        return lines[number - 1]

    path = f"{tmp_path}:{os.environ['PATH']}"
    with subprocess.Popen(["sh", ROOT / "deploy/compose/host.sh", "h1"], env={"PATH": path}) as host:
        pid, words = called(1).split(" ", 1)
        assert words == "-m sluice_ops.agent --host h1"
        os.kill(int(pid), signal.SIGKILL)
        agent = int(called(2).split()[0])
        host.terminate()
        assert called(3).endswith("--host h1 --stop-all")
        assert not Path(f"/proc/{agent}").exists(), (
            "the agent must end before its units are stopped, or it starts them again"
        )
        assert host.wait(20) == 0
