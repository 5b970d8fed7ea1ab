"""The routes of the page: its component, the state, its events, and the actions of a user."""

import json

import pytest
from fastapi.testclient import TestClient

from sluice_airflow.page import app as routes
from sluice_airflow.page import feed as feeds
from sluice_airflow.page.access import READER
from sluice_airflow.page.app import app, feed_of
from sluice_airflow.page.feed import Feed
from sluice_airflow.plugin import SluicePlugin
from sluice_ops.channel import ChannelAwayError

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:Using `httpx`")
ENTRY = {"name": "entry", "rate_in": 5.0, "lag": 0, "latency_ms": 9.0, "input_rates": {}, "output_rates": {}}
STATE = {"tiers": [ENTRY], "hosts": []}


@pytest.fixture
def client(monkeypatch):
    """A client that Airflow lets in, and a pipeline with one tier."""
    monkeypatch.setitem(app.dependency_overrides, READER.dependency, lambda: None)
    feed = Feed(lambda: dict(STATE), lambda: 1000.0)
    monkeypatch.setitem(app.dependency_overrides, feed_of, lambda: feed)
    return TestClient(app)


def test_the_plugin_names_the_component_and_its_checksum(client):
    (address,) = {app["bundle_url"] for app in SluicePlugin.react_apps}
    path, _, version = address.partition("?v=")
    assert (path, len(version)) == ("sluice/control_room.js", 12)
    answer = client.get(path.removeprefix("sluice"))
    assert answer.headers["content-type"].startswith("text/javascript")
    shown = {app["destination"]: app["name"] for app in SluicePlugin.react_apps}
    assert shown == {"nav": "Sluice", "dag": "Sluice", "dashboard": "Sluice overview"}
    for name in set(shown.values()):
        word = name if name.isalpha() else f'"{name}"'
        assert f"{word}:" in answer.text, "Airflow looks the component up by its name"


def test_each_place_in_airflow_has_a_route_of_its_own():
    routes_of_apps = [app["url_route"] for app in SluicePlugin.react_apps]
    assert len({*routes_of_apps}) == len(routes_of_apps), "Airflow drops a second app of a route"


def test_the_state_has_the_time_of_its_look(client):
    state = client.get("/state").json()
    assert (state["at"], state["stale"], state["tiers"]) == (1000.0, None, STATE["tiers"])
    assert state["last_hour"]["tiers"]["entry"]["rate_in"] == [5.0]


def test_without_a_state_the_answer_is_503_with_the_reason(client, monkeypatch):
    def away():
        message = "ZooKeeper does not answer"
        raise ChannelAwayError(message)

    monkeypatch.setitem(app.dependency_overrides, feed_of, lambda: Feed(away, lambda: 7.0))
    answer = client.get("/state")
    assert answer.status_code == 503
    assert answer.json() == {"stale": {"since": 7.0, "sentence": "ZooKeeper does not answer"}}


def test_events_are_a_stream_that_no_proxy_keeps(client, monkeypatch):
    monkeypatch.setattr(feeds, "STREAM_SECONDS", 0.5)
    answer = client.get("/events")
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert (answer.headers["cache-control"], answer.headers["x-accel-buffering"]) == ("no-store", "no")
    (first, *_) = [line for line in answer.text.splitlines() if line.startswith("data: ")]
    assert json.loads(first.removeprefix("data: "))["tiers"] == STATE["tiers"]


def test_an_unknown_connection_is_refused_and_starts_nothing(client, monkeypatch):
    monkeypatch.delitem(app.dependency_overrides, feed_of)
    monkeypatch.setattr(routes, "connections", lambda: ["shop"])
    before = routes._watched.cache_info().misses
    answer = client.get("/state?connection=other")
    assert (answer.status_code, "no connection 'other'" in answer.json()["detail"]) == (404, True)
    assert routes._watched.cache_info().misses == before
