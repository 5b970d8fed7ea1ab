"""Airflow finds exactly one file in the plugins folder.

Airflow executes each file that it finds under the file's bare name.
"""

import sys
from pathlib import Path

import pytest
from airflow._shared.module_loading.file_discovery import find_path_from_directory

import sluice_airflow.hooks.channel

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def test_airflow_finds_only_the_entry_file():
    plugin_files = [
        Path(path)
        for path in find_path_from_directory(ROOT / "plugins", ".airflowignore")
        if path.endswith(".py")
    ]
    assert [path.name for path in plugin_files] == ["sluice_plugin.py"]


def test_the_entry_file_shadows_no_module():
    assert "sluice_plugin" not in sys.stdlib_module_names
    assert not any(
        (Path(entry) / "sluice_plugin.py").exists()
        for entry in sys.path
        if entry and Path(entry) != ROOT / "plugins"
    )


def test_the_package_is_the_installed_one_and_imported_once():
    assert Path(sluice_airflow.hooks.channel.__file__).parents[1] == ROOT / "plugins" / "sluice_airflow"
    assert "hooks" not in sys.modules
