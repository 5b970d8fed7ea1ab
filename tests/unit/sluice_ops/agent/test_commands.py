"""Command lines and environments of units: everybody may read a command line, so it holds no
secret.
"""

import shlex
from pathlib import Path

from sluice_ops.agent.units.commands import Installation, command, environment
from sluice_ops.model.assignment import HostFacts, UnitKind
from sluice_ops.model.ids import HostName
from sluice_ops.model.spark import SPARK_SECURITY
from sluice_ops.site import spark
from tests.unit.sluice_ops.agent.test_reconcile import driver, slot

FACTS = HostFacts(name=HostName("h1"), address="127.0.1.1", zone="onprem", cpu=1, memory=1000)


def installation(home: Path, secret: str | None) -> Installation:
    return Installation(home, home / "shared", home / "e", home / "s", "spark://nowhere:1", secret, FACTS)


def test_a_slot_has_sparks_secret_in_its_environment_and_a_driver_has_not(tmp_path: Path) -> None:
    installed = installation(tmp_path, "a-secret")
    assert environment(slot(), tmp_path, installed, {})[spark.SECRET] == "a-secret"
    assert spark.SECRET not in environment(driver(), tmp_path, installed, {})
    for unit in (slot(), driver()):
        assert "a-secret" not in " ".join(command(unit, tmp_path, installed))
    assert {f"-D{key}={value}" for key, value in SPARK_SECURITY.items()} <= set(
        command(slot(), tmp_path, installed)
    )


def test_without_a_secret_spark_starts_without_authentication(tmp_path: Path) -> None:
    installed = installation(tmp_path, None)
    assert spark.SECRET not in environment(slot(), tmp_path, installed, {})
    assert not any("authenticate" in word for word in command(slot(), tmp_path, installed))


def test_a_unit_keeps_temporary_files_where_its_agent_removes_them(tmp_path: Path) -> None:
    for unit in (slot(), driver()):
        variables = environment(unit, tmp_path, installation(tmp_path, None), {"TMPDIR": "elsewhere"})
        assert variables["TMPDIR"] == variables["SPARK_LOCAL_DIRS"] == str(tmp_path)


def test_executors_get_their_class_data_and_temp_folder_from_their_host(tmp_path: Path) -> None:
    installed = installation(tmp_path, None)
    java_options = {
        unit.kind: shlex.split(environment(unit, tmp_path, installed, {})["JDK_JAVA_OPTIONS"])
        for unit in (slot(), driver())
    }
    assert f"-XX:AOTCache={spark.cache_of_tiers(installed.shared)}" in java_options[UnitKind.SLOT]
    assert java_options[UnitKind.DRIVER] == [f"-Djava.io.tmpdir={tmp_path}"]
    assert f"-XX:AOTCache={spark.cache_of_workers(installed.shared)}" in command(slot(), tmp_path, installed)
