"""docker-compose.yaml: its form by schema, and that everything which it names is there."""

import importlib.util
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from ops.endpoints import Endpoints
from ops.platform import airflow
from ops.platform.jars import LOCK, locked
from ops.platform.layout import Layout, Ports
from ops.site import Site, load

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yaml").read_text())
    return found


def settled(text: str) -> str:
    """Put something in for `${NAME:?why}`."""
    return re.sub(r"\$\{[A-Z_]+:\?[^}]*\}", "secret", text)


def commands(compose: dict[str, Any]) -> Iterator[list[str]]:
    yield from (service["command"] for service in compose["services"].values() if "command" in service)


def test_it_has_the_form_that_the_compose_specification_asks_for(compose: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator(json.loads(Path(__file__).with_name("compose.schema.json").read_text())).validate(compose)


def test_the_schema_would_notice_a_misspelt_key(compose: dict[str, Any]) -> None:
    schema = json.loads(Path(__file__).with_name("compose.schema.json").read_text())
    broken = json.loads(json.dumps(compose))
    broken["services"]["kafka"]["enviroment"] = {}
    with pytest.raises(jsonschema.ValidationError, match="enviroment"):
        jsonschema.Draft202012Validator(schema).validate(broken)


def test_every_part_of_the_system_has_a_service(compose: dict[str, Any]) -> None:
    expected = {"zookeeper", "kafka", "postgres", "controller", "spark-1", "spark-2", "h1", "h2", "h3"}
    airflow = {"airflow-api", "airflow-scheduler", "airflow-dags", "airflow-triggerer", "airflow-tables"}
    assert expected | airflow <= compose["services"].keys()


def test_whatever_a_service_waits_for_or_mounts_is_declared(compose: dict[str, Any]) -> None:
    services = compose["services"]
    for name, service in services.items():
        for other, how in service.get("depends_on", {}).items():
            assert other in services, f"{name} waits for {other}"
            if how["condition"] == "service_healthy":
                assert "healthcheck" in services[other], f"{name} waits for the health of {other}, which has no check"
        assert {entry["source"] for entry in service.get("configs", [])} <= compose["configs"].keys(), name
        assert {volume.split(":")[0] for volume in service.get("volumes", [])} <= compose["volumes"].keys(), name


def test_each_python_module_that_is_started_exists(compose: dict[str, Any]) -> None:
    text = "\n".join(" ".join(words) for words in commands(compose))
    modules = set(re.findall(r"python,? -m,? ([a-z_.]+)", text))
    assert {"ops.controller", "ops.agent", "pipeline.publish"} <= modules
    assert all(importlib.util.find_spec(module) for module in modules)


def test_each_airflow_setting_is_one_that_airflow_knows(compose: dict[str, Any], tmp_path: Path) -> None:
    spec = importlib.util.find_spec("airflow")
    assert spec is not None
    assert spec.origin is not None
    known = yaml.load((Path(spec.origin).parent / "config_templates" / "config.yml").read_text(), yaml.CSafeLoader)
    place = Layout(home=tmp_path, ports=Ports.above(40000), site=ROOT / "site.yaml")
    embedded = airflow.environment(place)
    for name in compose["services"]["airflow-api"]["environment"] | embedded:
        if name.startswith("AIRFLOW__"):
            _, section, key = name.split("__")
            assert key.lower() in known[section.lower()]["options"], name


def test_the_files_that_it_writes_are_read_by_our_own_readers(compose: dict[str, Any], tmp_path: Path) -> None:
    Endpoints.model_validate_json(settled(compose["configs"]["endpoints"]["content"]))
    json.loads(settled(compose["configs"]["airflow-passwords"]["content"]))
    site = tmp_path / "site.yaml"
    site.write_text(compose["configs"]["site"]["content"])
    found: Site = load(site)
    assert {host.name for host in found.hosts} == {words[-1] for words in commands(compose) if "ops.agent" in words}


def test_kafka_is_the_version_that_the_embedded_platform_runs(compose: dict[str, Any]) -> None:
    broker = next(jar for jar in locked(LOCK.read_text()) if jar.name == "kafka_2.13")
    assert compose["services"]["kafka"]["image"] == f"apache/kafka:{broker.revision}"


def test_zookeeper_tells_what_it_refuses_in_a_log_that_does_not_grow_for_ever(compose: dict[str, Any]) -> None:
    zookeeper = compose["services"]["zookeeper"]
    assert "audit.enable=true" in zookeeper["environment"]["ZOO_CFG_EXTRA"].split()
    assert {"max-size", "max-file"} <= zookeeper["logging"]["options"].keys()
