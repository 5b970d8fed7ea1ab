"""The unit files for real hosts: systemd accepts them, and the programs that they start exist."""

import os
import re
import shlex
import shutil
import subprocess
from configparser import ConfigParser
from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sluice.ingest.process import TAKEN_OVER_EXIT
from sluice_ops.agent.__main__ import arguments_of
from sluice_ops.agent.limits.control_group_trees import AGENTS
from sluice_ops.main import app

FOLDER = Path(__file__).resolve().parents[3] / "deploy" / "systemd"
FILES = (
    "sluice-agent@.service",
    "sluice-audit.service",
    "sluice-controller@.service",
    "sluice-ingest@.service",
)
WARNING_BEFORE_254 = "Unknown key 'DelegateSubgroup'"
"""The warning of systemd before version 254, which then starts agents in a cgroup without limits:
docs/limits.md.
"""


def unit(name: str) -> ConfigParser:
    parser = ConfigParser(interpolation=None, delimiters=("=",), comment_prefixes=("#",), strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(FOLDER / name)
    return parser


def settings() -> dict[str, str]:
    lines = (FOLDER / "sluice.env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def executed(name: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the command line that the unit's command executes for the instance `h1`."""
    executions: list[list[str]] = []
    monkeypatch.setattr(os, "execvp", lambda _program, words: executions.append(words))
    words = shlex.split(unit(name)["Service"]["ExecStart"])
    assert words[0] == "/opt/sluice/.venv/bin/sluice"
    typed = [
        re.sub(r"\$\{(\w+)\}", lambda match: settings()[match[1]], word).replace("%i", "h1")
        for word in words[1:]
    ]
    CliRunner().invoke(app, typed)
    return executions[0]


def test_the_folder_has_a_unit_for_each_process_of_a_real_host() -> None:
    assert {path.name for path in FOLDER.glob("*.service")} == set(FILES)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("name", FILES)
def test_systemd_accepts_the_unit_file(name: str, tmp_path: Path) -> None:
    program = tmp_path / "sluice"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    text = re.sub(r"/opt/sluice/.venv/bin/\w+", str(program), (FOLDER / name).read_text())
    file = tmp_path / name.replace("@", "@h1")
    file.write_text(text)
    verification = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(file)],
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )
    complaints = [
        line
        for line in verification.stderr.splitlines()
        if file.name in line and WARNING_BEFORE_254 not in line
    ]
    assert complaints == []
    file.write_text(
        text.replace("Restart=always", "Restart=allways\nRestrt=no").replace(str(program), "/no/such/program")
    )
    verification = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(file)],
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )
    assert all(word in verification.stderr for word in ("allways", "Restrt")), (
        "systemd-analyze does not report wrong settings"
    )
    assert verification.returncode != 0


def test_the_agents_unit_starts_the_agent_of_its_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    words = executed("sluice-agent@.service", monkeypatch)
    assert words[1:3] == ["-m", "sluice_ops.agent"]
    assert arguments_of(words[3:]).host == "h1"


def test_the_controllers_unit_starts_a_controller_of_that_name(monkeypatch: pytest.MonkeyPatch) -> None:
    words = executed("sluice-controller@.service", monkeypatch)
    assert words[1:] == ["-m", "sluice_ops.controller", "--name=h1", "--metrics=127.0.0.1:9464"]


def test_the_audits_unit_starts_the_audit() -> None:
    program, dash_m, module = shlex.split(unit("sluice-audit.service")["Service"]["ExecStart"])
    assert (program, dash_m) == ("/opt/sluice/.venv/bin/python", "-m")
    assert find_spec(f"{module}.__main__")


def test_the_unit_of_a_source_starts_what_its_file_says(monkeypatch: pytest.MonkeyPatch) -> None:
    service = unit("sluice-ingest@.service")["Service"]
    assert service["EnvironmentFile"] == "/etc/sluice/ingest-%i.env"
    assert int(service["RestartPreventExitStatus"]) == TAKEN_OVER_EXIT
    page = (FOLDER.parents[1] / "docs/sources.md").read_text()
    (example,) = re.findall(r"^    SLUICE_INGEST=(.*)$", page, re.MULTILINE)
    executions: list[list[str]] = []
    monkeypatch.setattr(os, "execvp", lambda _program, words: executions.append(words))
    words = service["ExecStart"].replace("$SLUICE_INGEST", example).replace("%i", "app-h1").split()
    CliRunner().invoke(app, words[1:])
    assert executions[0][1:] == [
        *("-m", "sluice.ingest.files", "--stream=raw", "--name=app-h1", "--metrics=10.0.0.7:9465"),
        *("--", "/var/log/app/*.log*"),
    ]


def test_stopping_or_losing_the_agent_ends_none_of_its_units() -> None:
    service = unit("sluice-agent@.service")["Service"]
    required = {
        "KillMode": "process",
        "OOMPolicy": "continue",
        "Restart": "always",
        "Delegate": "yes",
        "DelegateSubgroup": AGENTS,
    }
    assert {key: service[key] for key in required} == required
    assert not {"PrivateTmp", "RuntimeDirectory", "ProtectControlGroups", "PrivateUsers"} & service.keys(), (
        "units need the host's own /tmp, /run and cgroups"
    )


@pytest.mark.parametrize("name", FILES)
def test_all_units_restart_without_limit_and_limit_their_log(name: str) -> None:
    parser = unit(name)
    assert parser["Unit"]["StartLimitIntervalSec"] == "0"
    assert parser["Service"]["LogRateLimitBurst"].isdecimal()
    assert "EnvironmentFile=/etc/sluice/sluice.env\n" in (FOLDER / name).read_text()


def test_the_example_of_settings_names_every_setting_that_is_needed() -> None:
    assert settings().keys() == {"SLUICE_HOME", "SLUICE_SITE", "SLUICE_ENDPOINTS", "SLUICE_METRICS"}
