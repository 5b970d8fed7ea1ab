"""Slots of batch come back from real Spark jobs within their limit, and finished work is kept.

The test has a platform of its own, where batch may have six slots, and a DAG of its own.
"""

import json
import math
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.conftest import HOME, platform, quiet_site
from tests.scenarios.live import WAIT_SECONDS, Live, until
from tests.scenarios.sleeping_job import LONG_TASKS, SHORT_TASKS

pytestmark = [pytest.mark.endurance, pytest.mark.timeout(2400), pytest.mark.filterwarnings("ignore")]

SLOTS = 6
TAKEN_AT_ONCE = (3, 6, 6, 6, 6)
"""How many of the job's slots each demand takes."""
DAG = "sleeping_job"
DEADLINE = 2000
"""For all tries of the job together. Unit: seconds."""
APPLICATION = Path(__file__).with_name("sleeping_job.py")
OWN_DAG = """
from sluice_airflow.dags.parts import runbook
from sluice_airflow.operators.batch import SluiceBatchOperator

with runbook({dag!r}, doc="Sleep on lent slots.") as dag:
    SluiceBatchOperator(
        task_id="sleep", application={application!r}, application_args=[{notes!r}], slots={slots}, retries=20
    )
"""


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    home = HOME.with_name(f"{HOME.name}-reclaims")
    site = quiet_site()
    site["shares"]["batch"] = {"minimum": 0, "target": 0, "maximum": SLOTS}
    site["batch_quantum"] = {"cpu": 0.5, "memory": 700, "threads": 1}
    own = home / "own_dags"
    own.mkdir(parents=True, exist_ok=True)
    dag = OWN_DAG.format(dag=DAG, application=str(APPLICATION), notes=str(notes(home)), slots=SLOTS)
    (own / f"{DAG}.py").write_text(dag)
    classpath = "airflow.dag_processing.bundles.local.LocalDagBundle"
    bundles = [
        {"name": "dags-folder", "classpath": classpath, "kwargs": {}},
        {"name": "own", "classpath": classpath, "kwargs": {"path": str(own)}},
    ]
    with platform(home, site, AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST=json.dumps(bundles)) as running:
        yield running


def notes(home: Path) -> Path:
    return home / "sleeping_job.notes"


def ended(live: Live, stage: str) -> Counter[int]:
    """Return how often each task of a stage has ended."""
    lines = notes(live.home).read_text().splitlines() if notes(live.home).exists() else []
    return Counter(int(line.split()[1]) for line in lines if line.startswith(f"{stage} "))


def batch(live: Live) -> dict[str, Any]:
    answer: dict[str, Any] = live.sluice_json("batch")
    return answer


def lend(live: Live, slots: int) -> None:
    live.sluice("scale", "batch", str(slots), seconds=600)


def test_slots_come_back_from_running_jobs_within_their_limit(live: Live) -> None:
    notes(live.home).unlink(missing_ok=True)
    known = batch(live)["reclaims"]["count"]
    lend(live, SLOTS)
    run = live.trigger(DAG, deadline=DEADLINE)
    for demand, taken in enumerate(TAKEN_AT_ONCE):
        lend(live, SLOTS)
        before = ended(live, "long").total()
        until(
            "the job's long tasks run",
            WAIT_SECONDS * 2,
            lambda before=before: ended(live, "long").total() > before,
            every=1.0,
        )
        time.sleep(7.0 * demand % 20)
        lend(live, SLOTS - taken)
        until("the slots are back", WAIT_SECONDS, lambda: batch(live)["reclaims"]["going"] == 0, every=1.0)
        if taken < SLOTS:
            finished_work_is_kept(live)
    reclaims = batch(live)["reclaims"]
    print(json.dumps(reclaims))
    assert reclaims["count"] - known == sum(TAKEN_AT_ONCE)
    assert reclaims["late"] == 0
    assert reclaims["p99"] <= reclaims["limit"]
    lend(live, SLOTS)
    assert live.wait_for_end(DAG, run) == "success"
    assert ended(live, "total") == {LONG_TASKS: 1}
    lend(live, 0)


def finished_work_is_kept(live: Live) -> None:
    """Three of six slots went: the job ends tasks in the others, and repeats none of the short."""
    so_far = ended(live, "long").total()
    until(
        "the job goes on in its other slots",
        WAIT_SECONDS,
        lambda: ended(live, "long").total() > so_far + math.ceil(SLOTS / 2),
        every=1.0,
    )
    assert ended(live, "short") == dict.fromkeys(range(SHORT_TASKS), 1), "no finished task runs again"
