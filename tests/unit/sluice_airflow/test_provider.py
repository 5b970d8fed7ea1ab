"""The provider as Airflow sees it: its description, its connection type, and its operators."""

import json
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path

import airflow
import pytest
from airflow.providers_manager import ProvidersManager
from airflow.sdk.providers_manager_runtime import ProvidersManagerTaskRuntime
from jsonschema import Draft7Validator

from sluice_airflow.operators.changes import OPERATORS, SluiceChangeOperator
from sluice_airflow.provider import get_provider_info
from sluice_ops.planning.changes.kinds import KINDS

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:Using `httpx`")


def test_the_entry_point_gives_a_description_of_airflows_form():
    points = entry_points(group="apache_airflow_provider", name="provider_info")
    (point,) = (each for each in points if each.dist is not None and each.dist.name == "sluice-platform")
    info = point.load()()
    assert info == get_provider_info()
    assert info["package-name"] == "sluice-platform"
    schema = json.loads((Path(airflow.__file__).parent / "provider_info.schema.json").read_text())
    assert [error.message for error in Draft7Validator(schema).iter_errors(info)] == []


def test_every_module_link_and_class_that_the_provider_names_exists():
    info = get_provider_info()
    parts = [*info["hooks"], *info["operators"], *info["sensors"], *info["triggers"]]
    for name in (name for part in parts for name in part["python-modules"]):
        import_module(name)
    (connection,) = info["connection-types"]
    (assets,) = info["asset-uris"]
    named = (*info["notifications"], *info["extra-links"], connection["hook-class-name"])
    for path in (*named, assets["to_openlineage_converter"]):
        module, _, name = path.rpartition(".")
        assert hasattr(import_module(module), name), path


def test_airflows_connection_form_has_the_fields_of_the_type_sluice():
    manager = ProvidersManager()
    fields = {
        name.removeprefix("extra__sluice__")
        for name in manager.connection_form_widgets
        if name.startswith("extra__sluice__")
    }
    assert fields == {"site", "endpoints", "home", "dashboard"}
    assert "host" in manager.field_behaviours["sluice"]["hidden_fields"]
    hook = ProvidersManagerTaskRuntime().hooks["sluice"]
    assert hook is not None
    assert (hook.hook_name, hook.connection_testable) == ("Sluice", True)


def test_every_kind_of_change_with_a_runbook_has_an_operator():
    assert {operator.kind.name for operator in OPERATORS.values()} == {
        kind.name for kind in KINDS.values() if kind.runbook
    }
    drain = OPERATORS["SluiceDrainHostOperator"]
    task = drain(task_id="drain", host="h1", deadline=60)
    assert isinstance(task, SluiceChangeOperator)
    assert (task.change, task.deadline) == ({"kind": "drain", "host": "h1"}, 60)
    assert "Move everything off a host" in str(drain.__doc__)


def test_an_operator_refuses_missing_and_unknown_fields():
    with pytest.raises(TypeError, match="SluiceMigrateTierOperator needs to"):
        OPERATORS["SluiceMigrateTierOperator"](task_id="move", tier="enrich")
    with pytest.raises(TypeError, match="hots"):
        OPERATORS["SluiceDrainHostOperator"](task_id="drain", host="h1", hots="h2")
