"""Alerts are silenced on the page by users who may start runs, in their name."""

import time
from types import SimpleNamespace

import pytest
from airflow.api_fastapi.core_api.security import get_user
from fastapi.testclient import TestClient

from sluice_airflow.page import app as page
from sluice_airflow.page.access import READER
from sluice_ops.channel import trail_queue
from sluice_ops.model import paths
from sluice_ops.model.alert import AlertRequests
from sluice_ops.operations import alerts
from tests.simulation.memory import MemoryChannel

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:Using `httpx`")

LOST = "host-lost:h1"


@pytest.fixture
def channel():
    channel = MemoryChannel()
    channel.put(paths.ALERT_REQUESTS, AlertRequests())
    return channel


@pytest.fixture
def allowed():
    """The DAGs of which the user may start runs."""
    return {"drain_host"}


@pytest.fixture
def client(monkeypatch, channel, allowed):
    overrides = {
        READER.dependency: lambda: None,
        get_user: lambda: SimpleNamespace(get_name=lambda: "ben"),
        page.channel_of: lambda: channel,
    }
    for dependency, value in overrides.items():
        monkeypatch.setitem(page.app.dependency_overrides, dependency, value)
    monkeypatch.setattr(page, "may_trigger", lambda _user, dag_ids: [*allowed.intersection(dag_ids)])
    return TestClient(page.app)


def silences(channel):
    return alerts.read_requests(channel).silences


def test_an_alert_is_silenced_for_some_hours_in_the_name_of_the_user(client, channel):
    assert client.post("/alerts/silence", json={"key": LOST, "hours": 2}).status_code == 204
    ((key, silence),) = silences(channel).items()
    assert (key, silence.by) == (LOST, "airflow:ben")
    assert 7100 < silence.until - time.time() <= 7200
    (entry,) = [queued.entry for queued in trail_queue.queued(channel)]
    assert (entry.by, entry.what) == ("airflow:ben", f"alert silence {LOST}")


def test_a_silence_is_ended_once(client, channel):
    alerts.silence(channel, LOST, time.time() + 60, "cli:anna")
    assert client.post("/alerts/unsilence", json={"key": LOST}).status_code == 204
    assert silences(channel) == {}
    again = client.post("/alerts/unsilence", json={"key": LOST})
    assert (again.status_code, again.json()["detail"]) == (404, f"{LOST} is not silenced")


def test_a_user_who_may_start_no_run_silences_nothing(client, channel, allowed):
    alerts.silence(channel, LOST, time.time() + 60, "cli:anna")
    allowed.clear()
    assert client.post("/alerts/silence", json={"key": "gap:counts", "hours": 1}).status_code == 403
    assert client.post("/alerts/unsilence", json={"key": LOST}).status_code == 403
    assert list(silences(channel)) == [LOST]


@pytest.mark.parametrize("hours", [0, 25, None])
def test_a_silence_has_an_end_within_a_day(client, channel, hours):
    assert client.post("/alerts/silence", json={"key": LOST, "hours": hours}).status_code == 422
    assert silences(channel) == {}


def test_without_a_node_of_the_controller_the_reason_is_shown(client, channel):
    channel.delete(paths.ALERT_REQUESTS)
    refused = client.post("/alerts/silence", json={"key": LOST, "hours": 1})
    assert refused.status_code == 503
    assert "is a controller running?" in refused.json()["detail"]
