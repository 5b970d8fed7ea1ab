"""A user's own DAG: the provider's operators and sensor, on the pipeline of a connection."""

import json
import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.utils.state import DagRunState

from sluice_airflow.hooks.sluice import SluiceHook, shared_channel
from sluice_airflow.operators import hours
from sluice_airflow.operators.changes import OPERATORS
from sluice_ops.channel import Channel
from sluice_ops.model import paths
from sluice_ops.model.change import ChangeSpec, Result, Step
from sluice_ops.model.status import ControllerStatus, TierState, TierStatus
from sluice_ops.operations import requests
from sluice_ops.queries.figures import Audited, Figures
from tests.integration.sluice_airflow.conftest import ROOT
from tests.integration.sluice_airflow.controller import AnsweringController

pytestmark = [
    pytest.mark.usefixtures("database"),
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.timeout(240),
]
"""Airflow itself emits warnings."""

DAG = """
from airflow.sdk import DAG
from sluice_airflow.operators.changes import SluiceDrainHostOperator, SluiceReturnHostOperator
from sluice_airflow.sensors.hours import HourCompleteSensor

with DAG("patch_host", schedule=None, params={"host": "h1"}):
    host, conn = "{{ params.host }}", {"sluice_conn_id": "shop"}
    hour = HourCompleteSensor(task_id="hour", timeout=2, **conn)
    drain = SluiceDrainHostOperator(task_id="drain", host=host, deadline=120, retries=RETRIES, **conn)
    hour >> drain >> SluiceReturnHostOperator(task_id="back", host=host, **conn)
"""


@pytest.fixture
def shop(zookeeper, tmp_path, monkeypatch):
    """The connection `shop`; without it, this process's environment names no pipeline."""
    extra = {"site": str(ROOT / "site.yaml"), "endpoints": str(tmp_path / "endpoints.json")}
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps({"conn_type": "sluice", "extra": extra}))
    monkeypatch.setenv("SLUICE_HOME", str(tmp_path / "nowhere"))
    (tmp_path / "dags").mkdir()
    bundle = {
        "name": "own",
        "classpath": "airflow.dag_processing.bundles.local.LocalDagBundle",
        "kwargs": {"path": str(tmp_path / "dags")},
    }
    monkeypatch.setenv("AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST", json.dumps([bundle]))
    yield zookeeper
    shared_channel("shop").close()
    shared_channel.cache_clear()


@pytest.fixture
def complete(monkeypatch):
    until = [time.time()]
    tier = lambda: Audited(tier="counts", once=1, again=0, judges=True, at=0.0, complete=until[0])
    monkeypatch.setattr(SluiceHook, "figures", lambda _hook: Figures(audit=(tier(),)))
    return until


def run(tmp_path, *, retries=0):
    folder = tmp_path / "dags"
    (folder / "patch_host.py").write_text(DAG.replace("RETRIES", str(retries)))
    bag = DagBag(str(folder))
    assert bag.import_errors == {}
    return bag.dags["patch_host"].test()


def test_one_task_drains_a_host_with_all_steps(shop, complete, tmp_path):  # noqa: ARG001
    with AnsweringController(shop, seconds={Step.PREPARE: 3.0, Step.CUT: 2.5}) as controller:
        done = run(tmp_path)
    assert done.state == DagRunState.SUCCESS
    drain = ["preflight", "cordon", "prepare", "cut", "verify", "release"]
    assert controller.steps()[: len(drain)] == drain
    assert {operation.spec.host for operation in controller.posted} == {"h1"}
    assert {operation.spec.kind for operation in controller.posted} == {"drain", "return"}
    assert max(controller.results_written.values()) == 1


def test_a_failed_step_is_aborted_and_the_next_run_starts_again(shop, complete, tmp_path):  # noqa: ARG001
    fails = {Step.CUT: "tier counts did not pause within 30 s"}
    with AnsweringController(shop, seconds={Step.PREPARE: 2.5}, fails=fails) as controller:
        assert run(tmp_path).state == DagRunState.FAILED
        assert controller.steps() == ["preflight", "cordon", "prepare", "cut", "abort"]
        controller.fails.clear()
        assert run(tmp_path).state == DagRunState.SUCCESS
    assert len({operation.change for operation in controller.posted if operation.spec.kind == "drain"}) == 2


def test_a_retry_continues_a_change_and_begins_a_failed_one_again(shop):
    drain = OPERATORS["SluiceDrainHostOperator"](task_id="drain", host="h1", sluice_conn_id="shop")
    task = SimpleNamespace(dag_id="patch_host", run_id="r1", task_id="drain", map_index=-1)
    context = {"ti": task, "dag": SimpleNamespace(dag_id="patch_host"), "run_id": "r1"}
    context["dag_run"] = SimpleNamespace(triggering_user_name="anna")
    spec = ChangeSpec(kind="drain", host="h1")
    with Channel(shop) as channel:
        first = drain._attempt(channel, context)
        requests.post(channel, drain._operation(context, first, Step.PREFLIGHT, spec, 60.0))
        assert drain._attempt(channel, context) == first, "a lost worker left the change unfinished"
        refused = Result(ok=False, sentence="host h1 is lost", finished_at=time.time())
        channel.create(paths.result(requests.operation_id(first, Step.PREFLIGHT)), refused)
        second = drain._attempt(channel, context)
        assert second != first
        abort = drain._operation(context, second, Step.ABORT, spec, 60.0)
        requests.post(channel, abort)
        channel.create(paths.result(abort.id), refused.model_copy(update={"ok": True}))
        assert drain._attempt(channel, context) not in {first, second}, "a person ended the second one"


def test_the_sensor_fails_if_the_hour_is_not_complete_in_time(shop, complete, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(hours, "POLL_SECONDS", 0.2)
    complete[0] = (datetime.now(UTC) - timedelta(hours=2)).timestamp()
    with AnsweringController(shop) as controller:
        assert run(tmp_path).state == DagRunState.FAILED
    assert controller.steps() == []
    assert "counts is complete up to" in capsys.readouterr().out


def test_the_button_test_names_the_pipeline_and_its_tiers(shop, complete):  # noqa: ARG001
    tested, message = SluiceHook("shop").test_connection()
    assert (tested, "no controller has written a status" in message) == (False, True)
    with Channel(shop) as channel:
        tiers = {"counts": TierStatus(state=TierState.RUNNING, sentence="runs")}
        channel.put(
            paths.CONTROLLER_STATUS,
            ControllerStatus(leader="c1", epoch=1, at=0, sentence="", tiers=tiers),
        )
    assert SluiceHook("shop").test_connection() == (
        True,
        "Pipeline hits: controller c1 leads. Tiers: counts",
    )
