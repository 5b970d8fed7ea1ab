"""Airflow finds the plugin by the package's entry point, and the DAGs by one call."""

import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import sluice_airflow.hooks.sluice

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:Using `httpx`")


def test_the_entry_point_names_the_plugin():
    (point,) = entry_points(group="airflow.plugins", name="sluice")
    assert point.dist is not None
    assert point.dist.name == "sluice-platform"
    assert point.load().fastapi_apps[0]["url_prefix"] == "/sluice"


def test_the_package_is_the_installed_one_and_imported_once():
    assert Path(sluice_airflow.hooks.sluice.__file__).parents[1] == ROOT / "plugins" / "sluice_airflow"
    assert "hooks" not in sys.modules
