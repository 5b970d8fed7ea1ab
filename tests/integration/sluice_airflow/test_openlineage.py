"""Events of Airflow's provider of OpenLineage, as its own listener writes them: which streams and
tables tasks read and write.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable

import pytest
from airflow.models.asset import AssetEvent
from airflow.utils.session import create_session

from sluice_ops.channel import Channel
from sluice_ops.model import paths
from sluice_ops.model.batch import BatchGrants, BatchRequest, Grant
from sluice_ops.model.incarnation import TierWanted
from sluice_ops.model.tier import Delivery, Kind, Mode, PublishedTier
from sluice_ops.operations import requests

pytestmark = [
    pytest.mark.usefixtures("database"),
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.timeout(240),
]
"""Airflow itself emits warnings."""

WAIT_SECONDS = 90
COUNTS = PublishedTier(
    name="counts",
    kind=Kind.PROCESSING,
    mode=Mode.BATCH,
    delivery=Delivery.EXACTLY_ONCE,
    inputs=("enriched",),
    outputs=("sums",),
    streams={"enriched": {"id": "string", "at": "bigint"}, "sums": None},
    tables={"campaign_counts": {"campaign": "text"}},
)
DAGS = """
import json, os
from pathlib import Path

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk import DAG
from sluice_airflow.assets import HOUR_COMPLETE, stream, table
from sluice_airflow.dags import runbooks
from sluice_airflow.operators.batch import SluiceBatchOperator

SparkSubmitHook.submit = lambda hook, _application: Path(os.environ["SPARK_CONF"]).write_text(
    json.dumps(hook._conf)
)
runbooks()
with DAG("jobs", schedule=[HOUR_COMPLETE]):
    SluiceBatchOperator(task_id="undeclared", application="/srv/jobs/train.py")
    SluiceBatchOperator(
        task_id="refused",
        module="hits.nightly_report",
        tenant="nobody",
        inlets=[stream("enriched"), HOUR_COMPLETE],
        outlets=[table("campaign_counts"), table("daily")],
    )
"""
RUN = """
import sys, warnings
warnings.simplefilter("ignore")
from airflow.dag_processing.dagbag import DagBag

bag = DagBag(sys.argv[1])
assert bag.import_errors == {}
bag.dags[sys.argv[2]].test()
"""
ENRICHED = ("kafka://127.0.0.1:1", "enriched", {"id": "string", "at": "bigint"})
SUMS = ("kafka://127.0.0.1:1", "sums", None)
COUNTED = ("postgres://127.0.0.1:1", "none.public.campaign_counts", {"campaign": "text"})
DAILY = ("postgres://127.0.0.1:1", "none.public.daily", None)


def until(true: Callable[[], object]) -> None:
    end = time.monotonic() + WAIT_SECONDS
    while not true():
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.fixture
def run(zookeeper, tmp_path):
    """Start a run of a DAG in a process of its own; return the process, and a reader of events."""
    assert zookeeper
    (tmp_path / "tiers.json").write_text(json.dumps([COUNTS.model_dump(mode="json")]))
    folder, events = tmp_path / "dags", tmp_path / "events"
    folder.mkdir()
    (folder / "pipeline.py").write_text(DAGS)
    bundle = {
        "name": "own",
        "classpath": "airflow.dag_processing.bundles.local.LocalDagBundle",
        "kwargs": {"path": str(folder)},
    }
    transport = {"type": "file", "log_file_path": str(events), "append": True}
    settings = {
        "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps([bundle]),
        "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(transport),
        "AIRFLOW__OPENLINEAGE__SPARK_INJECT_PARENT_JOB_INFO": "True",
        "SPARK_CONF": str(tmp_path / "spark.json"),
    }
    started = []

    def start(dag):
        command = [sys.executable, "-c", RUN, str(folder), dag]
        with (tmp_path / "log").open("w") as log:
            started.append(subprocess.Popen(command, env=os.environ | settings, stdout=log, stderr=log))
        return started[-1]

    def read(job):
        """Return the events of a job: type, run, inputs, outputs."""
        all_events = [json.loads(line) for line in events.read_text().splitlines()]
        return [event for event in all_events if event["job"]["name"] == job]

    yield start, read
    for process in started:
        process.kill()
        process.wait()


def datasets(event, side):
    def columns(facets):
        schema = facets.get("schema")
        return None if schema is None else {field["name"]: field["type"] for field in schema["fields"]}

    return [(each["namespace"], each["name"], columns(each["facets"])) for each in event[side]]


def test_the_tasks_of_a_tier_tell_its_streams_and_tables(run, zookeeper, tmp_path):
    start, read = run
    process = start("tier_counts")
    with Channel(zookeeper) as channel:
        wanted = lambda: channel.read(paths.wanted("counts"), TierWanted)
        until(lambda: wanted() is not None and wanted().value.running)
        requests.want(channel, "counts", by="cli:anna", running=False)
    process.wait(WAIT_SECONDS)
    for task, types in (("launch", ["START", "COMPLETE"]), ("supervise", ["START", "START", "COMPLETE"])):
        events = read(f"tier_counts.{task}")
        assert [event["eventType"] for event in events] == types, (tmp_path / "log").read_text()[-3000:]
        assert len({event["run"]["runId"] for event in events}) == 1, "a resumed task is the same run"
        for event in events:
            assert datasets(event, "inputs") == [ENRICHED]
            assert datasets(event, "outputs") == [SUMS, COUNTED]
    with create_session() as session:
        events = session.query(AssetEvent).filter(AssetEvent.source_dag_id == "tier_counts").all()
        announced = [(event.source_task_id, event.asset.name) for event in events]
    assert announced == [("launch", "stream_sums")], "an event on a table means complete hours"


def test_a_batch_job_tells_its_application_and_what_it_declares(run, zookeeper, tmp_path):
    start, read = run
    process = start("jobs")
    with Channel(zookeeper) as channel:
        until(lambda: channel.children(paths.BATCH_JOBS))
        (job,) = channel.children(paths.BATCH_JOBS)

        def waits_in_the_triggerer():
            request = channel.read(paths.batch_job(job), BatchRequest).value
            return request.renewed_at > request.at

        until(waits_in_the_triggerer)
        grant = Grant(slots=1, started_with=1, at=time.time())
        channel.put(paths.BATCH_GRANTS, BatchGrants(grants={job: grant}))
        process.wait(WAIT_SECONDS)
    log = (tmp_path / "log").read_text()[-3000:]
    location = lambda event: event["job"]["facets"]["sourceCodeLocation"]["url"]
    first, resumed, complete = read("jobs.undeclared")
    assert [event["eventType"] for event in (first, resumed, complete)] == ["START", "START", "COMPLETE"], log
    assert {event["run"]["runId"] for event in (first, resumed, complete)} == {first["run"]["runId"]}
    assert {location(event) for event in (first, resumed, complete)} == {"file:///srv/jobs/train.py"}
    assert [*first["inputs"], *complete["outputs"]] == []
    conf = json.loads((tmp_path / "spark.json").read_text())
    assert conf["spark.openlineage.parentRunId"] == first["run"]["runId"]

    begun, failed = read("jobs.refused")
    assert [event["eventType"] for event in (begun, failed)] == ["START", "FAIL"], log
    assert location(begun).endswith("hits/nightly_report.py")
    for event in (begun, failed):
        assert datasets(event, "inputs") == [ENRICHED], "the asset of an event is no dataset"
        assert datasets(event, "outputs") == [COUNTED, DAILY]
