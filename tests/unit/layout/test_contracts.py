"""Import contracts, the dependency lock, and the length of test names."""

import ast
import re
import subprocess
import sys
import tomllib
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
LONGEST_TEST_NAME = 70
DAG_FILES = sorted([*(ROOT / "dags").glob("*.py"), *(ROOT / "plugins/sluice_airflow/dags").glob("*.py")])
FORBIDDEN_IN_DAGS = {"pyspark", "py4j", "boto3", "botocore", "kazoo", "psycopg"}


def imports(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    plain = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    return {
        name.split(".")[0]
        for name in plain | {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    }


@pytest.mark.parametrize("path", DAG_FILES, ids=lambda path: f"{path.parent.parent.name}/{path.name}")
def test_dags_import_neither_spark_nor_cloud_nor_channel_clients(path: Path) -> None:
    assert not imports(path) & FORBIDDEN_IN_DAGS


def test_the_import_contracts_hold() -> None:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache", "--no-logo"]
    completed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stdout


def test_the_lock_pins_each_dependency_with_a_checksum_and_no_address() -> None:
    text = (ROOT / "requirements.lock").read_text()
    body = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))
    assert "://" not in body
    pinned = {
        re.sub("[-_.]+", "-", name).lower()
        for name in re.findall(r"^([A-Za-z0-9_.-]+)==", body, re.MULTILINE)
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"].values()
    wanted = [*project["project"]["dependencies"], *chain(*extras), *project["dependency-groups"]["dev"]]
    wanted = [requirement for requirement in wanted if not requirement.startswith("sluice-platform[")]
    names = {re.sub("[-_.]+", "-", re.split(r"[\[<>=! ]", requirement)[0]).lower() for requirement in wanted}
    assert names <= pinned
    assert body.count("--hash=sha256:") >= len(pinned)


def test_names_of_tests_are_short_enough_to_read() -> None:
    too_long = [
        name
        for file in sorted((ROOT / "tests").rglob("test_*.py"))
        for name in re.findall(r"def (test_\w+)", file.read_text())
        if len(name) > LONGEST_TEST_NAME
    ]
    assert too_long == []


def test_decision_records_have_at_most_400_words() -> None:
    records = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    words = {record.name: len(record.read_text().split()) for record in records}
    assert len(words) > 50
    assert {name: count for name, count in words.items() if count > 400} == {}
