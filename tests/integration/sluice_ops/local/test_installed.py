"""Sluice installed from its wheel, without a checkout: docs/quickstart.md works as written, and a
host joins as docs/hosts.md says.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml

from sluice_ops.local import install
from sluice_ops.local.layout import Layout, Ports
from sluice_ops.local.services.postgres import connect
from tests.lab import ROOT, free_base, until

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
PAGE = (ROOT / "docs" / "quickstart.md").read_text()
STEPS = re.findall(r"^```sh\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", PAGE, re.MULTILINE | re.DOTALL)
"""The shell blocks of the page, each with the lines that its output has according to the page."""
PLAN_SECONDS = 2.0
"""The longest time of a dry run, from its request to its result."""


class Shell:
    """A user's shell in an environment of its own, with the folder that the user is in."""

    def __init__(self, folder: Path, environment: Path, settings: Mapping[str, str]) -> None:
        own = {name: value for name, value in os.environ.items() if not name.startswith("SLUICE_")}
        own.pop("PYTHONPATH", None)
        self.folder = folder
        self._env = own | {"PATH": f"{environment / 'bin'}:/usr/bin:/bin", "COLUMNS": "160"} | settings

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

    def answer(self, command: str) -> Any:
        """Return the command's JSON."""
        return json.loads(self.run(f"{command} --json"))

    @contextmanager
    def agent(self, *words: str) -> Iterator[Path]:
        """Run an agent beside the block, and yield the file of its output; end its units, too."""
        log = self.folder / "output"
        with (
            log.open("w") as output,
            subprocess.Popen(words, cwd=self.folder, env=self._env, stdout=output, stderr=output) as process,
        ):
            try:
                yield log
            finally:
                process.terminate()
                process.wait()
                self.run(f"{shlex.join(words)} --stop-all")


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Return a folder that PostgreSQL's user can read; pytest's own folders are private."""
    made = Path(tempfile.mkdtemp(prefix="sluice-installed-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


def uv(*words: str) -> None:
    subprocess.run([install.uv(), *words, "--quiet"], env=install.registry_settings(), check=True)


@pytest.fixture(scope="module")
def wheel(folder: Path) -> Path:
    install.build_wheel(folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def environment(folder: Path, wheel: Path) -> Path:
    """Return a virtual environment with the wheel and the locked packages, and nothing else."""
    python = str(folder / "env" / "bin" / "python")
    uv("venv", "--python", install.python(), str(folder / "env"))
    uv("pip", "sync", "--python", python, "--require-hashes", str(ROOT / "requirements.lock"))
    assert f"{wheel.name}[embedded]" in PAGE
    uv("pip", "install", "--no-deps", "--python", python, str(wheel))
    return folder / "env"


@pytest.fixture(scope="module")
def agent_environment(folder: Path, wheel: Path) -> Path:
    """Return a virtual environment with the wheel and its extra `agent`, and nothing else."""
    python, versions = str(folder / "agent" / "bin" / "python"), folder / "versions.txt"
    locked = re.findall(r"^\S+==[^\\\n]+", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    versions.write_text("\n".join(locked))
    uv("venv", "--python", install.python(), str(folder / "agent"))
    uv("pip", "install", "--python", python, "--constraint", str(versions), f"{wheel}[agent]")
    return folder / "agent"


@pytest.fixture(scope="module")
def shell(environment: Path, folder: Path) -> Iterator[Shell]:
    opened = Shell(folder, environment, {"SLUICE_PORT_BASE": str(free_base())})
    yield opened
    if opened.folder != folder:
        opened.run("sluice clean --yes")


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


@pytest.fixture
def shop(shell: Shell, folder: Path) -> Shell:
    """Return the shell in the project of the page; its platform runs."""
    if shell.folder == folder:
        shell.run("sluice init shop")
        shell.folder = folder / "shop"
    shell.run("sluice up; sluice endpoints --client-properties outside > outside.properties")
    return shell


def test_a_host_with_the_agents_packages_joins_and_takes_a_tier(
    shop: Shell, agent_environment: Path, folder: Path
) -> None:
    machine = folder / "h3"
    machine.mkdir()
    site = yaml.safe_load((shop.folder / "site.yaml").read_text())
    added = {**site["hosts"][0], "name": "h3", "address": "127.0.1.3"}
    (machine / "site.yaml").write_text(yaml.safe_dump(site | {"hosts": [*site["hosts"], added]}))
    settings = {
        "SLUICE_HOME": str(machine / "home"),
        "SLUICE_SITE": str(machine / "site.yaml"),
        "SLUICE_ENDPOINTS": str(machine / "endpoints.json"),
    }
    host = Shell(machine, agent_environment, settings)
    shop.run(f"sluice token {machine}/h3.token --host h3")
    with host.agent("sluice", "agent", "--host", "h3", "--token-file", "h3.token") as log:
        until("h3 is registered", lambda: "host registered" in log.read_text(), 60)
        assert not (machine / "h3.token").exists()
        findings = host.answer("sluice doctor --host h3")["findings"]
        assert [finding for finding in findings if finding["verdict"] == "bad"] == []
        assert shop.answer("sluice migrate sales h3 --dry-run")["seconds"] < PLAN_SECONDS
        shop.run("sluice migrate sales h3")
        (sales,) = (tier for tier in shop.answer("sluice tiers") if tier["name"] == "sales")
        assert sales["driver"]["host"] == "h3"
        before = orders_in_table(shop)
        shop.run("python produce.py 90")
        until("h3 writes the orders", lambda: orders_in_table(shop) == before + 90)
        shop.run("sluice decommission h3")
        assert "host h3 was decommissioned" in log.read_text()
    assert "h3" not in [each["name"] for each in shop.answer("sluice hosts")]


def test_a_table_with_the_name_of_an_examples_table_delays_no_start(shop: Shell) -> None:
    ports = Ports.above(int(shop.run("echo $SLUICE_PORT_BASE")))
    with connect(Layout(shop.folder / ".sluice", ports, shop.folder / "site.yaml"), "sluice") as link:
        link.execute("CREATE TABLE delivered (parcel text)")
    shop.run("sluice down; sluice up")
    before = orders_in_table(shop)
    shop.run("python produce.py 30")
    until("the orders are in the table", lambda: orders_in_table(shop) == before + 30)


def orders_in_table(shop: Shell) -> int:
    with psycopg.connect(shop.answer("sluice endpoints")["postgres"]) as link:
        row = link.execute("SELECT coalesce(sum(orders), 0)::int FROM sales").fetchone()
    assert row is not None
    return int(row[0])
