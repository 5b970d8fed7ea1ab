"""`sluice init` makes a project, or names what stands in its way; `sluice test` tests it."""

import ast
import os
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sluice_ops.cli import projects
from sluice_ops.main import app
from sluice_ops.site import site_file


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SLUICE_HOME", str(tmp_path))
    monkeypatch.setenv("SLUICE_SITE", str(tmp_path / "site.yaml"))
    return tmp_path


def test_a_new_project_has_its_name_everywhere(folder: Path) -> None:
    done = CliRunner().invoke(app, ["init", "kiosk"])
    assert done.exit_code == 0, done.output
    assert "cd kiosk" in done.stdout
    assert "unset SLUICE_SITE" in done.stderr
    files = {str(path.relative_to(folder / "kiosk")) for path in folder.rglob("*") if path.is_file()}
    assert files == {
        ".gitignore",
        "README.md",
        "dags/runbooks.py",
        "kiosk/__init__.py",
        "kiosk/orders.py",
        "kiosk/sales.py",
        "produce.py",
        "pyproject.toml",
        "site.yaml",
        "tests/test_kiosk.py",
    }
    for name in files:
        text = (folder / "kiosk" / name).read_text()
        assert projects.NAME not in text, name
        if name.endswith(".py"):
            ast.parse(text)
    assert site_file.load(folder / "kiosk" / "site.yaml").pipeline == "kiosk"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Kiosk-2", "cannot be the name of a Python package"),
        ("class", "cannot be the name of a Python package"),
        ("json", "belongs to another Python module"),
        ("tests", "belongs to another Python module"),
        ("dags", "belongs to another Python module"),
        ("taken", "exists and is not empty"),
    ],
)
def test_a_name_that_cannot_be_used_is_refused(folder: Path, name: str, reason: str) -> None:
    (folder / "taken").mkdir()
    (folder / "taken" / "file").touch()
    done = CliRunner().invoke(app, ["init", name])
    assert (done.exit_code, reason in done.stderr) == (2, True), done.output
    assert [path.name for path in folder.iterdir()] == ["taken"]


def test_the_tests_of_a_project_find_their_tiers_by_name() -> None:
    test = ast.parse((projects.TEMPLATE / "tests" / f"test_{projects.NAME}.py").read_text())
    named = [ast.unparse(node) for node in ast.walk(test) if isinstance(node, ast.Call)]
    assert {"PIPELINE.tier('orders')", "PIPELINE.tier('sales')"} <= {*named}, "a third tier breaks no test"


BECAME_PYTEST = 77


def become(module: str, *_words: str) -> None:
    assert module == "pytest"
    raise SystemExit(BECAME_PYTEST)


def test_the_tests_of_a_project_begin_with_its_declarations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for variable in ("SLUICE_SITE", "SLUICE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(projects, "become", become)
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(app, ["init", "kiosk"]).exit_code == 0
    monkeypatch.chdir(tmp_path / "kiosk")
    assert CliRunner().invoke(app, ["test"]).exit_code == BECAME_PYTEST
    orders = tmp_path / "kiosk" / "kiosk" / "orders.py"
    orders.write_text(f"{orders.read_text()}\n\nTEA = F.col('item') == 'tea'\n")
    wrong = CliRunner().invoke(app, ["test"])
    assert wrong.exit_code == 1, wrong.output
    refusal = capfd.readouterr().err
    assert f"{orders}, line " in refusal
    assert "make columns (F.col, F.lit …) inside the transform" in refusal
    assert "Traceback" not in refusal
