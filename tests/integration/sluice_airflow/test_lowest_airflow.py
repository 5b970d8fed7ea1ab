"""The provider works on the oldest versions of Airflow that `pyproject.toml` allows."""

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from sluice_ops.local import install
from tests.lab import ROOT

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

OLDER = {"aiosqlite"}
"""Packages of which the oldest Airflow needs an older version than the locked one."""
TESTED_WITH = ("hypothesis", "jsonschema", "pytest", "pytest-timeout", "pytest-xdist")


def oldest(requirement: str) -> str:
    """Return a requirement with a lower bound as one for exactly the lowest version."""
    return re.sub(r">=([0-9.]+).*", r"==\1", requirement)


def test_the_unit_tests_pass_on_the_oldest_airflow(tmp_path: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [oldest(each) for each in project["optional-dependencies"]["airflow"]]
    airflow = next(each for each in wanted if each.startswith("apache-airflow=="))
    lock = (ROOT / "requirements.lock").read_text()
    exact = [
        line
        for line, name in re.findall(r"^(([a-z0-9-]+)==.*?) *\\?$", lock, re.MULTILINE)
        if name not in OLDER and not name.startswith("apache-airflow")
    ]
    constraints = tmp_path / "constraints.txt"
    constraints.write_text("\n".join(exact))
    uv, python = install.uv(), str(tmp_path / "env" / "bin" / "python")

    def run(*words: str) -> None:
        subprocess.run([uv, *words, "--quiet"], env=install.registry_settings(), check=True)

    run("venv", "--python", install.python(), str(tmp_path / "env"))
    own = [*wanted, *project["dependencies"], *TESTED_WITH]
    run("pip", "install", "--python", python, "--constraints", str(constraints), *own)
    run("pip", "install", "--python", python, "--no-deps", "--editable", str(ROOT))

    outside = {name: value for name, value in os.environ.items() if not re.match("AIRFLOW|SLUICE", name)}
    version = subprocess.run(
        [python, "-c", "import airflow; print(airflow.__version__)"],
        env=outside | {"AIRFLOW_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"apache-airflow=={version.stdout.split()[-1]}" == airflow
    done = subprocess.run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/unit/sluice_airflow"],
        cwd=ROOT,
        env=outside,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout
