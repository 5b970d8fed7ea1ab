"""Sluice installed from its wheel, without a checkout: a new project runs on it."""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from sluice_ops.local import install
from tests.lab import ROOT, free_base, until

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
ORDERS = 90


class Project:
    """A project in an environment of its own."""

    def __init__(self, folder: Path, environment: Path) -> None:
        own = {name: value for name, value in os.environ.items() if not name.startswith("SLUICE_")}
        own.pop("PYTHONPATH", None)
        self.folder = folder
        self._env = own | {
            "PATH": f"{environment / 'bin'}:/usr/bin:/bin",
            "SLUICE_PORT_BASE": str(free_base()),
            "COLUMNS": "160",
        }

    def run(self, *words: str, check: bool = True) -> str:
        done = subprocess.run(
            words, cwd=self.folder, env=self._env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0 or not check, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return a folder that PostgreSQL's user can read; pytest's own folders are private."""
    made = Path(tempfile.mkdtemp(prefix="sluice-installed-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@pytest.fixture
def environment(folder: Path) -> Path:
    """Return a virtual environment with the wheel and the locked packages, and nothing else."""
    uv, python = install.uv(), str(folder / "env" / "bin" / "python")

    def run(*words: str) -> None:
        subprocess.run([uv, *words, "--quiet"], env=install.registry_settings(), check=True)

    install.build_wheel(folder)
    run("venv", "--python", install.python(), str(folder / "env"))
    run("pip", "sync", "--python", python, "--require-hashes", str(ROOT / "requirements.lock"))
    (wheel,) = folder.glob("*.whl")
    run("pip", "install", "--no-deps", "--python", python, str(wheel))
    return folder / "env"


@pytest.fixture
def shop(environment: Path, folder: Path) -> Iterator[Project]:
    Project(folder, environment).run("sluice", "init", "shop")
    project = Project(folder / "shop", environment)
    yield project
    project.run("sluice", "clean")


def test_a_new_project_is_tested_started_fed_and_drained(shop: Project) -> None:
    assert "2 passed" in shop.run("sluice", "test")
    shop.run("sluice", "up")
    properties = shop.run("sluice", "endpoints", "--client-properties", "outside")
    (shop.folder / "outside.properties").write_text(properties)
    shop.run("python", "produce.py", str(ORDERS))
    postgres = json.loads(shop.run("sluice", "endpoints", "--json"))["postgres"]
    with psycopg.connect(postgres, autocommit=True) as link:

        def sold() -> list[tuple[str, int, int]]:
            return link.execute("SELECT item, orders, pieces FROM sales ORDER BY item").fetchall()

        third = ORDERS // 3
        until(
            "all orders are in the table",
            lambda: sold() == [(item, third, third) for item in ("rice", "salt", "tea")],
        )
    assert "h1 is drained and empty" in shop.run("sluice", "drain", "h1")
    audit = json.loads(shop.run("sluice", "audit", "--json"))
    assert (audit["ok"], len(audit["tiers"])) == (True, 2), audit
