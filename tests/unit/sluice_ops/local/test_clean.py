"""`sluice clean` deletes nothing without a yes."""

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sluice_ops.main import app


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "home"
    (made / "conf").mkdir(parents=True)
    monkeypatch.setenv("SLUICE_HOME", str(made))
    monkeypatch.setenv("SLUICE_SITE", str(tmp_path / "site.yaml"))
    return made


def test_a_script_has_to_say_yes(home: Path) -> None:
    refused = CliRunner().invoke(app, ["clean"])
    assert (refused.exit_code, home.exists()) == (2, True)
    assert f"all data in {home}" in refused.stderr
    assert refused.stderr.endswith("sluice clean --yes\n")
    done = CliRunner().invoke(app, ["clean", "--yes"])
    assert (done.exit_code, home.exists()) == (0, False), done.output


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1), ("\n", 1)])
def test_a_person_is_asked(home: Path, monkeypatch: pytest.MonkeyPatch, answer: str, code: int) -> None:
    runner = CliRunner()
    with runner.isolation(input=answer):
        terminal = type(sys.stdin)
    monkeypatch.setattr(terminal, "isatty", lambda _stdin: True)
    done = runner.invoke(app, ["clean", "--json"], input=answer)
    assert (done.exit_code, home.exists()) == (code, code == 1), done.output
    assert "Delete all data in" in done.stderr
    assert "Delete" not in done.stdout


def test_without_a_home_nobody_is_asked(home: Path) -> None:
    (home / "conf").rmdir()
    home.rmdir()
    done = CliRunner().invoke(app, ["clean"])
    assert (done.exit_code, "does not exist" in done.stdout) == (0, True)
