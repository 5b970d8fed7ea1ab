"""The project of a command is the nearest folder with a site file."""

import os
import sys
from pathlib import Path

import pytest

from sluice_ops.site import project


@pytest.fixture
def shop(tmp_path, monkeypatch):
    for variable in ("SLUICE_HOME", "SLUICE_SITE", "PYTHONPATH"):
        monkeypatch.delenv(variable, raising=False)
    folder = tmp_path / "shop"
    (folder / "shop" / "deep").mkdir(parents=True)
    (folder / "site.yaml").touch()
    monkeypatch.chdir(folder / "shop" / "deep")
    return folder


def test_a_command_below_the_project_finds_site_file_and_home(shop):
    assert project.found() == shop
    assert (project.site_path(), project.home()) == (shop / "site.yaml", shop / ".sluice")


def test_the_variables_name_another_site_file_and_another_home(shop, tmp_path, monkeypatch):
    monkeypatch.setenv("SLUICE_SITE", "other.yaml")
    monkeypatch.setenv("SLUICE_HOME", str(tmp_path / "home"))
    assert project.site_path() == Path.cwd() / "other.yaml"
    assert project.home() == tmp_path / "home"
    assert project.own_home() == shop / ".sluice"


def test_another_process_gets_the_project(shop):
    assert project.environment() == {
        "SLUICE_HOME": str(shop / ".sluice"),
        "SLUICE_SITE": str(shop / "site.yaml"),
    }


def test_a_command_that_runs_the_pipelines_code_can_import_it(shop, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/opt/more")
    monkeypatch.setattr(sys, "path", ["/opt/other"])
    project.use_code()
    project.use_code()
    assert os.environ["PYTHONPATH"] == f"{shop}{os.pathsep}/opt/more"
    assert sys.path == ["/opt/other", str(shop)]


def test_without_a_project_no_folder_is_added_to_the_code(shop, tmp_path, monkeypatch):
    del shop
    monkeypatch.chdir(tmp_path)
    assert project.found() is None
    assert project.site_path() == tmp_path / "site.yaml"
    project.use_code()
    assert "PYTHONPATH" not in os.environ


def test_a_removed_folder_is_no_project(shop, tmp_path, monkeypatch):
    del shop
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    monkeypatch.setenv("SLUICE_SITE", "/etc/sluice/site.yaml")
    assert project.found() is None
    assert project.site_path() == Path("/etc/sluice/site.yaml")
