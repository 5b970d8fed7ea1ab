"""The DAG that announces complete hours, run by Airflow itself."""

import contextlib
import json
import time
from datetime import UTC, datetime, timedelta

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.models.asset import AssetEvent
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState

from sluice_airflow.hooks.sluice import SluiceHook
from sluice_airflow.operators import hours
from sluice_ops.channel import Channel
from sluice_ops.model import paths
from sluice_ops.model.tier import Delivery, Kind, Mode, PublishedTier, TierSpec
from sluice_ops.operations import requests
from sluice_ops.queries.figures import Audited, Figures
from tests.integration.sluice_airflow.conftest import ROOT

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(240)]
"""Airflow itself emits warnings."""


COUNTS = PublishedTier(
    name="counts",
    kind=Kind.OUTBOUND,
    mode=Mode.BATCH,
    delivery=Delivery.EXACTLY_ONCE,
    inputs=("enriched",),
    tables={"campaign_counts": {"campaign": "text"}},
)


@pytest.fixture
def dag(database, zookeeper, tmp_path):  # noqa: ARG001
    (tmp_path / "tiers.json").write_text(json.dumps([COUNTS.model_dump(mode="json")]))
    return DagBag(str(ROOT / "dags")).dags["hour_complete"]


def announced_hours(asset="hour_complete"):
    with create_session() as session:
        events = session.query(AssetEvent).order_by(AssetEvent.timestamp)
        return [
            (event.extra["from"], event.extra["until"])
            for event in events
            if event.asset.name == asset and "until" in event.extra
        ]


def run(dag):
    with contextlib.suppress(Exception):
        return dag.test()
    return None


def test_each_hour_is_an_event_once_and_a_late_hour_alerts(dag, zookeeper, monkeypatch, tmp_path):
    complete = [time.time()]
    rows = lambda: Figures(
        audit=(Audited(tier="counts", once=1, again=0, judges=True, at=0.0, complete=complete[0]),)
    )
    monkeypatch.setattr(SluiceHook, "figures", lambda _hook: rows())
    monkeypatch.setattr(hours, "POLL_SECONDS", 0.2)
    assert run(dag).state == DagRunState.SUCCESS
    until = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    hour = [((until - timedelta(hours=1)).isoformat(), until.isoformat())]
    assert announced_hours() == announced_hours("table_campaign_counts") == hour
    assert run(dag).state == DagRunState.SUCCESS
    assert announced_hours()[1:] == [], "the same hour is not announced twice"

    complete[0] -= 7200
    monkeypatch.setattr(hours, "LATE_SECONDS", 1.0)
    with Channel(zookeeper) as channel:
        fields = COUNTS.model_dump(exclude={"streams", "tables"})
        channel.put(paths.tier("counts"), TierSpec.model_validate(fields))
        requests.want(channel, "counts", by="cli:anna", running=True, paused=True)
        assert run(dag).state == DagRunState.SUCCESS
        assert not (tmp_path / "alerts").exists(), "a paused tier causes no alert"
        requests.want(channel, "counts", by="cli:anna", paused=False)
    run(dag)
    (alert,) = [path.read_text() for path in (tmp_path / "alerts").iterdir()]
    assert "have left every tier: counts is complete up to" in alert
