"""Sluice installed from its wheel, without a checkout: docs/quickstart.md works as written."""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from sluice_ops.local import install
from tests.lab import ROOT, free_base, until

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
PAGE = (ROOT / "docs" / "quickstart.md").read_text()
STEPS = re.findall(r"^```sh\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", PAGE, re.MULTILINE | re.DOTALL)
"""The shell blocks of the page, each with the lines that its output has according to the page."""


class Shell:
    """A user's shell in an environment of its own, with the folder that the user is in."""

    def __init__(self, folder: Path, environment: Path) -> None:
        own = {name: value for name, value in os.environ.items() if not name.startswith("SLUICE_")}
        own.pop("PYTHONPATH", None)
        self.folder = folder
        self._env = own | {
            "PATH": f"{environment / 'bin'}:/usr/bin:/bin",
            "SLUICE_PORT_BASE": str(free_base()),
            "COLUMNS": "160",
        }

    def run(self, commands: str) -> str:
        done = subprocess.run(
            ["/bin/bash", "-euo", "pipefail", "-c", f"{commands}\npwd"],
            cwd=self.folder,
            env=self._env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{commands}: {done.stdout}{done.stderr}"
        output, _, folder = done.stdout.removesuffix("\n").rpartition("\n")
        self.folder = Path(folder)
        return output


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
    assert f"{wheel.name}[embedded]" in PAGE
    run("pip", "install", "--no-deps", "--python", python, str(wheel))
    return folder / "env"


@pytest.fixture
def shell(environment: Path, folder: Path) -> Iterator[Shell]:
    opened = Shell(folder, environment)
    yield opened
    if opened.folder != folder:
        opened.run("sluice clean")


def test_the_quickstart_page_works_as_it_is_written(shell: Shell) -> None:
    assert len(STEPS) > 8
    for commands, shown in STEPS:
        if "SELECT" in commands:  # the rows come some seconds after the records were sent
            until(f"{commands} shows {shown}", partial(_shows, shell, commands, shown))
        else:
            assert _shows(shell, commands, shown), commands


def _shows(shell: Shell, commands: str, shown: str) -> bool:
    output = shell.run(commands)
    return all(line in output for line in shown.splitlines())
