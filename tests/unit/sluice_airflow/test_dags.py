"""The DAG files as Airflow loads them: quickly, with the same result each time, and with the
documented forms and steps.
"""

import copy
import json
import subprocess
import sys
import time
import uuid
from datetime import UTC, datetime
from pathlib import Path

import pytest
from airflow.api_fastapi.execution_api.datamodels.taskinstance import DagRun as DagRunData
from airflow.dag_processing.dagbag import DagBag
from airflow.executors.workloads.task import TaskInstanceDTO
from airflow.jobs.triggerer_job_runner import TriggerRunner
from airflow.sdk import TriggerRule
from airflow.sdk.exceptions import ParamValidationError
from airflow.serialization.serialized_objects import DagSerialization

from sluice_airflow.assets import hour_complete, stream, table
from sluice_airflow.dags.parts import page, task_id
from sluice_airflow.dags.shifts import FIRST_RUN_LATE
from sluice_airflow.notifiers.alerts import SluiceNotifier
from sluice_airflow.operators.steps import StepOperator
from sluice_ops.model.change import Step
from sluice_ops.model.tier import Delivery, Kind, Mode, PublishedTier, TierSpec
from sluice_ops.planning.changes.kind import HOST, Input
from sluice_ops.planning.changes.kind import Kind as ChangeKind
from sluice_ops.planning.changes.kinds import KINDS

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)

DAG_FILES = sorted((ROOT / "dags").glob("*.py"))
PARSE_SECONDS = 1.0
"""The processor time that a DAG file may take, once everything is imported."""
RUNBOOKS = {kind.runbook: name for name, kind in KINDS.items() if kind.runbook} | {
    "burst_to_ec2": "burst",
    "leave_ec2": "leave",
    "night_shift": "shift",
    "day_shift": "shift",
}
FIELDS = {
    runbook: KINDS[name].fields
    for runbook, name in RUNBOOKS.items()
    if runbook not in {"night_shift", "day_shift"}
}
BEFORE = {"burst_to_ec2": ["quota", "approval", "launch", "wait_for_host"]}
AFTER = {"leave_ec2": ["terminate"], "new_hosts": ["spread"]}


@pytest.fixture(scope="module")
def bag():
    loaded = DagBag(str(ROOT / "dags"))
    assert loaded.import_errors == {}
    return loaded


def task_path(dag):
    """Return the tasks that carry out a runbook, from its first task to its end."""
    apart = {"abort", "end"} | ({"terminate"} if dag.dag_id == "burst_to_ec2" else set())
    task = next(task for task in dag.roots if task.task_id not in apart)
    names = []
    while task is not None:
        names.append(task.task_id)
        after = [following for following in task.downstream_list if following.task_id not in apart]
        assert len(after) <= 1
        task = after[0] if after else None
    return names


@pytest.mark.parametrize("file", DAG_FILES, ids=lambda file: file.name)
def test_a_dag_file_parses_in_a_second(bag, file):
    assert bag.import_errors == {}, "the imports are warm"
    before = time.process_time()
    assert DagBag(str(file)).dags
    assert time.process_time() - before < PARSE_SECONDS


def test_every_runbook_and_every_tier_has_its_dag(bag):
    tiers = {f"tier_{name}" for name in ("entry", "enrich", "counts", "outbound")}
    others = {
        "nightly_report",
        "hour_complete",
        "reap_ec2",
        "follow_change",
        "scaler",
        "rolling_reboot",
        "upgrade_pipeline",
        "drain_to_empty",
        "replay_tier",
    }
    assert set(bag.dags) == set(RUNBOOKS) | others | tiers


def test_a_runbooks_tasks_are_the_steps_of_its_change_in_order(bag):
    for name, kind in RUNBOOKS.items():
        steps = ["cut_over" if step == "cut" else str(step) for step in KINDS[kind].steps]
        assert task_path(bag.dags[name]) == BEFORE.get(name, []) + steps + AFTER.get(name, []), name


def test_a_failed_step_is_followed_by_an_abort_and_fails_the_run(bag):
    for name in RUNBOOKS:
        dag = bag.dags[name]
        abort, end = dag.get_task("abort"), dag.get_task("end")
        steps = {task.task_id for task in dag.tasks if isinstance(task, StepOperator)} - {"abort"}
        assert end.upstream_task_ids == {task_path(dag)[-1]}
        if not abort.is_teardown:
            assert steps <= abort.upstream_task_ids, name
            assert abort.trigger_rule == TriggerRule.ONE_FAILED
            assert not end.downstream_task_ids, "`end` must be a leaf: its upstream failure fails the run"


def test_the_triggerer_can_begin_each_step_after_the_first(bag):
    begun, now = 0, datetime.now(UTC)
    for name in RUNBOOKS:
        dag = bag.dags[name]
        empty = {key: field.schema for key, field in dag.params.items() if not field.has_value}
        conf = {
            key: (schema.get("enum") or schema.get("examples") or [1])[0] for key, schema in empty.items()
        }
        run = DagRunData(
            dag_id=name,
            run_id="r1",
            logical_date=None,
            data_interval_start=None,
            data_interval_end=None,
            run_after=now,
            start_date=now,
            end_date=None,
            run_type="manual",
            state="running",
            conf=conf,
            consumed_asset_events=[],
            partition_key=None,
        ).model_dump(exclude_unset=True)
        for task in (task for task in dag.tasks if task.start_from_trigger):
            instance = TaskInstanceDTO.model_construct(
                id=uuid.uuid4(), dag_id=name, run_id="r1", task_id=task.task_id, map_index=-1, try_number=1
            )
            made = TriggerRunner.create_runtime_ti(instance, DagSerialization.to_dict(dag), run)
            context = made.get_template_context()
            assert context["dag_run"].start_date == now
            begun += 1
    assert begun > len(RUNBOOKS)


def test_a_burst_is_undone_however_its_run_ends(bag):
    dag = bag.dags["burst_to_ec2"]
    abort, terminate = dag.get_task("abort"), dag.get_task("terminate")
    assert (abort.upstream_task_ids, terminate.upstream_task_ids) == ({"end"}, {"abort"})
    assert abort.is_teardown, "a teardown is not skipped when a person marks the run failed"
    assert terminate.is_teardown
    assert not any(task.is_setup for task in dag.tasks), (
        "with a setup, the teardown would not run after an interrupted setup"
    )
    assert not abort.on_failure_fail_dagrun, "`end` must stay a leaf: its upstream failure fails the run"
    assert terminate.on_failure_fail_dagrun, "otherwise a run that a person marked failed ends as a success"


def test_a_failed_spread_leaves_the_proved_host_in_use(bag):
    dag = bag.dags["new_hosts"]
    spread, abort = dag.get_task("spread"), dag.get_task("abort")
    assert spread.change == {"kind": "rebalance"}
    assert "spread" not in abort.upstream_task_ids, "the abort of a canary cordons the host"
    assert "spread" in dag.get_task("end").upstream_task_ids, "a failed spread fails the run"
    assert "\n| spread | " in dag.doc_md


def test_every_form_has_its_fields_a_deadline_and_a_dry_run(bag):
    for name in [*RUNBOOKS, "nightly_report"]:
        params = bag.dags[name].params
        fields = FIELDS.get(name, ())
        assert set(params) == {field.name for field in fields} | {"deadline", "dry_run"}, name
        if not any(field.required or field.input is Input.HOST for field in fields):
            params.validate()


def test_no_field_is_empty_by_default_because_airflow_submits_only_null(bag):
    empty = [
        f"{name}.{field}"
        for name, dag in bag.dags.items()
        for field in dag.params
        if dag.params.get_param(field).value == ""
    ]
    assert empty == []


def test_a_form_describes_each_field_in_the_words_of_its_change(bag):
    for name, fields in FIELDS.items():
        for field in fields:
            words = HOST.help if field.input is Input.HOST else field.help
            shown = bag.dags[name].params.get_param(field.name).description
            assert shown.startswith(words), f"{name}.{field.name}"


@pytest.mark.parametrize("step", Step)
def test_a_runbooks_page_explains_each_step(step):
    class OneStep(ChangeKind):
        summary, steps = "Look.", (step,)

    assert f"\n| {task_id(step)} | " in page(OneStep())


def test_forms_list_the_site_files_hosts_and_accept_joined_hosts(bag):
    params = copy.deepcopy(bag.dags["drain_host"].params)
    assert params.get_param("host").schema["examples"] == ["h1", "h2", "h3"]
    for accepted in ("h1", "ec2-0a1b2c3d", "joined-later"):
        params["host"] = accepted
    for refused in ("", "H1", "h1 h2", "zone:onprem"):
        with pytest.raises(ParamValidationError):
            params["host"] = refused


def test_the_form_of_migrate_takes_single_workers_and_says_so(bag):
    params = copy.deepcopy(bag.dags["migrate_tier"].params)
    assert params["workers"] is None, "empty: the whole tier moves"
    assert params.get_param("workers").description.startswith("A single worker to move to a host")
    params["workers"] = "slot-enrich-4-1, slot-enrich-4-2"
    pause = bag.dags["pause_pipeline"].params.get_param("workers")
    assert pause.description.startswith("Single workers to pause")


def test_a_tier_is_scaled_to_a_number_or_to_a_part_of_the_cluster(bag):
    params = copy.deepcopy(bag.dags["scale_tier"].params)
    for accepted in (3, "3", "50%", "12.5%"):
        params["k"] = accepted
    for refused in (-1, "none", "5%%", ""):
        with pytest.raises(ParamValidationError):
            params["k"] = refused


@pytest.mark.parametrize(("dag", "field"), [("burst_to_ec2", "k"), ("repartition_tier", "partitions")])
def test_a_count_has_no_limit_of_the_form_because_the_plan_refuses_it(bag, dag, field):
    params = copy.deepcopy(bag.dags[dag].params)
    params[field] = 5000
    with pytest.raises(ParamValidationError):
        params[field] = 0


@pytest.mark.parametrize("limit", ["minimum", "maximum"])
def test_a_limit_may_be_given_or_left_out(bag, limit):
    params = copy.deepcopy(bag.dags["scale_tier"].params)
    assert params[limit] is None
    for accepted in (None, "", 2, "2", "50%"):
        params[limit] = accepted
    for refused in (-1, "none", "5%%"):
        with pytest.raises(ParamValidationError):
            params[limit] = refused


def test_dags_have_one_active_run_and_no_catch_up(bag):
    for dag in bag.dags.values():
        assert dag.max_active_runs == 1
        assert dag.catchup is False
        assert dag.is_paused_upon_creation is False
        assert dag.doc_md


def test_shifts_begin_at_their_hour_in_the_sites_time_zone(bag):
    night = bag.dags["night_shift"].timetable
    assert (night.expression, str(night.timezone)) == ("0 22 * * *", "Europe/Bucharest")
    assert night.run_immediately == FIRST_RUN_LATE


SHIFTS = """
shifts:
  night: {schedule: "0 22 * * mon-fri", timezone: Europe/Berlin, shares: {enrich: 1, batch: 1}}
  weekend: {schedule: "0 22 * * sat", shares: {enrich: {target: 1, maximum: 2}, batch: 50%}}
  day: {schedule: "0 6 * * mon-fri", timezone: Europe/Berlin, not_on: [2026-12-28, 2026-12-25]}
"""


def test_each_shift_of_the_site_file_has_its_dag(tmp_path, monkeypatch):
    shipped = (ROOT / "site.yaml").read_text()
    (tmp_path / "site.yaml").write_text(shipped[: shipped.index("shifts:")] + SHIFTS)
    monkeypatch.setenv("SLUICE_SITE", str(tmp_path / "site.yaml"))
    loaded = DagBag(str(ROOT / "dags"))
    assert loaded.import_errors == {}
    shifts = {name: dag for name, dag in loaded.dags.items() if name.endswith("_shift")}
    tables = {name: dag.timetable for name, dag in shifts.items()}
    assert {name: (table.expression, str(table.timezone)) for name, table in tables.items()} == {
        "night_shift": ("0 22 * * mon-fri", "Europe/Berlin"),
        "weekend_shift": ("0 22 * * sat", "UTC"),
        "day_shift": ("0 6 * * mon-fri", "Europe/Berlin"),
    }
    last = {name: dag.get_task("release") for name, dag in shifts.items()}
    assert {name: [asset.uri for asset in task.outlets] for name, task in last.items()} == {
        "night_shift": ["sluice://shares/batch"],
        "weekend_shift": ["sluice://shares/batch"],
        "day_shift": [],
    }
    assert shifts["weekend_shift"].get_task("preflight").change == {"kind": "shift", "shift": "weekend"}
    assert (
        "shift `weekend`: enrich 1 (maximum 2), batch 50%, all other " in shifts["weekend_shift"].description
    )
    assert "in Europe/Berlin, but not on 2026-12-25, 2026-12-28, or" in shifts["day_shift"].doc_md


def test_every_task_sends_an_alert_on_failure(bag):
    for dag in bag.dags.values():
        for task in dag.tasks:
            if task.task_id != "end":
                assert [type(callback) for callback in task.on_failure_callback] == [SluiceNotifier], (
                    f"{dag.dag_id}.{task.task_id}"
                )


def test_serialising_twice_gives_the_same_bytes(bag):
    def serialised(dags):
        return {name: json.dumps(DagSerialization.to_dict(dag), sort_keys=True) for name, dag in dags.items()}

    assert serialised(bag.dags) == serialised(DagBag(str(ROOT / "dags")).dags)


def test_dags_follow_the_published_tiers(own_home):
    spec = TierSpec(
        name="fifth", kind=Kind.PROCESSING, mode=Mode.BATCH, delivery=Delivery.AT_LEAST_ONCE, inputs=("hits",)
    )
    (own_home / "tiers.json").write_text(json.dumps([spec.model_dump(mode="json")]))
    dags = DagBag(str(ROOT / "dags")).dags
    assert {name for name in dags if name.startswith("tier_")} == {"tier_fifth"}
    assert dags["scale_tier"].params.get_param("tier").schema["enum"] == ["fifth", "batch"]
    launch = dags["tier_fifth"].get_task("launch")
    assert (launch.inlets, launch.outlets) == ([stream("hits")], []), "the file of an earlier version"


def test_the_graph_of_assets_has_the_streams_and_tables_of_tiers(own_home):
    fields = {"kind": Kind.PROCESSING, "mode": Mode.BATCH, "delivery": Delivery.AT_LEAST_ONCE}
    tiers = [
        PublishedTier(name="first", inputs=("raw",), outputs=("hits",), **fields),
        PublishedTier(name="last", inputs=("hits", "ads"), tables={"sums": {"ad": "text"}}, **fields),
    ]
    (own_home / "tiers.json").write_text(json.dumps([tier.model_dump(mode="json") for tier in tiers]))
    before = time.process_time()
    dags = DagBag(str(ROOT / "dags")).dags
    assert time.process_time() - before < PARSE_SECONDS * len(DAG_FILES)
    launches = [dags[f"tier_{name}"].get_task("launch") for name in ("first", "last")]
    assert [(launch.inlets, launch.outlets) for launch in launches] == [
        ([stream("raw")], [stream("hits")]),
        ([stream("hits"), stream("ads")], [table("sums")]),
    ]
    assert dags["hour_complete"].get_task("tell").outlets == [hour_complete(), table("sums")]
    again = DagBag(str(ROOT / "dags")).dags
    for name in ("tier_first", "tier_last", "hour_complete"):
        assert DagSerialization.to_dict(dags[name]) == DagSerialization.to_dict(again[name])


def test_two_pipelines_have_dags_of_their_own_in_one_airflow(own_home, monkeypatch):
    folder = own_home / "dags"
    folder.mkdir()
    (folder / "two.py").write_text(
        "from sluice_airflow.dags import runbooks  # DAG airflow\nrunbooks()\nrunbooks('shop')\n"
    )
    extra = {"site": str(ROOT / "site.yaml"), "endpoints": str(own_home / "endpoints.json")}
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps({"conn_type": "sluice", "extra": extra}))
    bag = DagBag(str(folder))
    assert bag.import_errors == {}
    own = {name for name in bag.dags if not name.startswith("shop_")}
    assert set(bag.dags) == own | {f"shop_{name}" for name in own}
    for name, dag in bag.dags.items():
        connection = "shop" if name.startswith("shop_") else None
        assert ("shop" in dag.tags) == (connection is not None)
        for task in dag.tasks:
            if task.task_id != "end":
                (notifier,) = task.on_failure_callback
                assert notifier.sluice_conn_id == connection, name
                assert getattr(task, "sluice_conn_id", connection) == connection, name
    nights = (bag.dags["night_shift"], bag.dags["shop_night_shift"])
    (lent,), (shop_lent,) = (night.get_task(task_path(night)[-1]).outlets for night in nights)
    assert (lent.uri, shop_lent.uri) == ("sluice://shares/batch", "sluice://shop/shares/batch")


def test_parsing_imports_neither_spark_nor_boto():
    code = (
        "import sys, warnings; warnings.simplefilter('ignore')\n"
        "from airflow.dag_processing.dagbag import DagBag\n"
        f"assert not DagBag({str(ROOT / 'dags')!r}).import_errors\n"
        "print([name for name in ('pyspark', 'boto3', 'botocore', 'ortools') if name in sys.modules])"
    )
    completed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert completed.stdout.splitlines()[-1] == "[]"


def test_the_dags_need_no_provider_of_openlineage():
    code = (
        "import sys, warnings; warnings.simplefilter('ignore')\n"
        "sys.modules['openlineage'] = None  # as if it were not installed\n"
        "from airflow.dag_processing.dagbag import DagBag\n"
        f"bag = DagBag({str(ROOT / 'dags')!r})\n"
        "import sluice_airflow.lineage\n"
        "print(bag.import_errors, len(bag.dags) > 20)"
    )
    completed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert completed.stdout.splitlines()[-1] == "{} True"
