"""Complete runs of the real DAGs, by Airflow itself, against a controller that answers: their
steps, results and alerts.
"""

import contextlib
import json

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.utils.state import DagRunState

from sluice_ops.model.change import Step
from tests.integration.sluice_airflow.conftest import ROOT
from tests.integration.sluice_airflow.controller import AnsweringController

pytestmark = [
    pytest.mark.usefixtures("database"),
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.timeout(240),
]
"""Airflow itself emits warnings."""


def run(name, **conf):
    """Run a DAG and its triggers in this process; return its run, or None if the run failed.

    The DAG is parsed again for each run, because a run leaves the form's values in the DAG's
    parameters. Elsewhere they end with the task's process.
    """
    dag = DagBag(str(ROOT / "dags" / "runbooks.py")).dags[name]
    with contextlib.suppress(Exception):
        return dag.test(run_conf=conf)
    return None


def states(done):
    return {task.task_id: task.state for task in done.get_task_instances()}


def test_a_drain_posts_its_steps_in_order_and_succeeds(zookeeper):
    with AnsweringController(zookeeper, seconds={Step.PREPARE: 3.0}) as controller:
        done = run("drain_host", host="h1")
    assert done.state == DagRunState.SUCCESS
    assert controller.steps() == ["preflight", "cordon", "prepare", "cut", "verify", "release"]
    assert {operation.spec.host for operation in controller.posted} == {"h1"}
    assert states(done)["abort"] == "skipped"
    assert max(controller.results_written.values()) == 1


def test_a_failed_step_is_aborted_and_alerted_and_the_run_fails(zookeeper, tmp_path):
    with AnsweringController(
        zookeeper, fails={Step.CUT: "tier counts did not pause within 30 s"}
    ) as controller:
        run("drain_host", host="h2")
    assert controller.steps() == ["preflight", "cordon", "prepare", "cut", "abort"]
    (alert,) = [json.loads(path.read_text()) for path in (tmp_path / "alerts").iterdir()]
    assert alert["task"] == "cut_over"
    assert "tier counts did not pause within 30 s" in alert["happened"]
    assert "aborting the change" in alert["did"]


def test_a_form_that_is_no_change_alerts_once_and_has_nothing_to_undo(zookeeper, tmp_path):
    with AnsweringController(zookeeper) as controller:
        run("scale_tier", tier="counts", k="2", until="9")
    assert controller.steps() == []
    (alert,) = [json.loads(path.read_text()) for path in (tmp_path / "alerts").iterdir()]
    assert alert["task"] == "preflight"
    assert "until" in alert["happened"]


def test_a_dry_run_shows_the_plan_and_posts_nothing_else(zookeeper):
    with AnsweringController(zookeeper) as controller:
        done = run("reboot_host", host="h3", dry_run=True)
    assert controller.steps() == ["preflight (dry run)"]
    assert done.state == DagRunState.SUCCESS
    task_states = states(done)
    assert task_states.pop("preflight") == task_states.pop("end") == "success"
    assert set(task_states.values()) == {"skipped"}


def test_a_host_is_cordoned_and_drift_repaired_as_the_forms_say(zookeeper):
    with AnsweringController(zookeeper) as controller:
        cordoned = run("cordon_host", host="h2")
        repaired = run("repair_drift", tier="counts")
        run("repair_drift", dry_run=True)
        run("scale_tier", tier="counts", k=3, minimum="2", maximum=4, dry_run=True)
    assert {cordoned.state, repaired.state} == {DagRunState.SUCCESS}
    steps = {}
    for operation in controller.posted:
        steps.setdefault(operation.spec.model_dump_json(exclude_defaults=True), []).append(operation.step)
    assert steps == {
        '{"kind":"cordon","host":"h2"}': ["preflight", "cordon"],
        '{"kind":"repair","tier":"counts"}': ["preflight", "prepare", "cut", "verify", "release"],
        '{"kind":"repair"}': ["preflight"],
        '{"kind":"scale","tier":"counts","k":3,"minimum":2,"maximum":4,"layer":"person"}': ["preflight"],
    }
