"""The page of Airflow's UI: 401 without Airflow's authentication, the channel's state with it."""

import time

import pytest
from airflow.api_fastapi.app import create_auth_manager
from airflow.api_fastapi.auth.managers.base_auth_manager import COOKIE_NAME_JWT_TOKEN
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from airflow.models.connection import Connection
from airflow.utils.session import create_session
from fastapi.testclient import TestClient
from sqlalchemy import delete

from sluice_airflow.page.app import _watched, app
from sluice_ops.channel import Channel
from sluice_ops.model import paths
from sluice_ops.model.alert import Alert, AlertRecord, AlertRequests, Severity, Silence
from sluice_ops.model.assignment import HostFacts, HostRecord, HostState
from sluice_ops.model.change import ChangeRecord, ChangeSpec, ChangeState, Plan
from sluice_ops.model.ids import HostName, Incarnation, TierName
from sluice_ops.model.incarnation import IncarnationSpec, OwnerRecord, Placement
from sluice_ops.model.status import ControllerStatus, TierState, TierStatus
from sluice_ops.model.tier import Delivery, Kind, Mode, TierSpec

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(90)]
"""Airflow itself emits warnings."""


@pytest.fixture(scope="module")
def token(database):  # noqa: ARG001
    manager = create_auth_manager()
    manager.init()
    return manager.generate_jwt(SimpleAuthManagerUser(username="anna", role="viewer"))


@pytest.fixture
def client():
    return TestClient(app)


ROUTES = sorted((route.path, *route.methods) for route in app.routes)


def test_there_are_no_routes_but_the_page_and_its_data():
    assert ROUTES == [
        ("/actions", "GET"),
        ("/alerts/silence", "POST"),
        ("/alerts/unsilence", "POST"),
        ("/changes/{name}", "GET"),
        ("/changes/{name}/answer", "POST"),
        ("/connections", "GET"),
        ("/control_room.js", "GET"),
        ("/events", "GET"),
        ("/hosts/{name}", "GET"),
        ("/log", "GET"),
        ("/state", "GET"),
        ("/tiers/{name}", "GET"),
    ]


@pytest.mark.parametrize(("route", "method"), ROUTES)
def test_without_a_token_every_route_answers_401(client, token, route, method):
    del token  # Airflow's authentication is set up by the fixture
    assert client.request(method, route).status_code == 401


@pytest.mark.parametrize(("route", "method"), ROUTES)
def test_with_a_wrong_token_no_route_answers(client, token, route, method):
    headers = {"Authorization": f"Bearer {token}x"}
    assert client.request(method, route, headers=headers).status_code in {401, 403}


@pytest.mark.parametrize(("route", "method"), ROUTES)
def test_a_user_without_the_right_to_see_plugins_gets_403(client, token, route, method):
    del token
    nobody = create_auth_manager().generate_jwt(SimpleAuthManagerUser(username="nina", role=None))
    answer = client.request(method, route, headers={"Authorization": f"Bearer {nobody}"})
    assert answer.status_code == 403


def test_a_viewers_token_or_cookie_shows_the_page(client, token):
    headers = {"Authorization": f"Bearer {token}"}
    assert "globalThis.React" in client.get("/control_room.js", headers=headers).text
    client.cookies.set(COOKIE_NAME_JWT_TOKEN, token)
    assert client.get("/connections").status_code == 200


def test_only_a_user_who_may_start_runs_gets_actions(client, token):
    assert client.get("/actions", headers={"Authorization": f"Bearer {token}"}).json() == []
    operator = create_auth_manager().generate_jwt(SimpleAuthManagerUser(username="otto", role="user"))
    found = client.get("/actions", headers={"Authorization": f"Bearer {operator}"}).json()
    assert {"drain_host", "burst_to_ec2", "leave_ec2"} <= {action["dag_id"] for action in found}


def test_the_page_lists_the_connections_to_pipelines(client, token, monkeypatch):
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "server")  # as the API server sets it
    headers = {"Authorization": f"Bearer {token}"}
    assert client.get("/connections", headers=headers).json() == []
    with create_session() as session:
        session.add(Connection(conn_id="shop", conn_type="sluice"))
        session.add(Connection(conn_id="other", conn_type="http"))
    assert client.get("/connections", headers=headers).json() == ["shop"]
    state = client.get("/state?connection=shop", headers=headers)
    assert (state.status_code, "the field 'endpoints' is empty" in state.json()["stale"]["sentence"]) == (
        503,
        True,
    )
    with create_session() as session:
        session.execute(delete(Connection).where(Connection.conn_id.in_(["shop", "other"])))


def state_of(client, headers):
    """Return the state of now; one of the last second may be older than the test's writes."""
    _watched.cache_clear()
    return client.get("/state", headers=headers).json()


def test_the_state_is_the_channels(client, token, zookeeper):
    placement = Placement(driver=HostName("h2"), slots=(HostName("h2"), HostName("h3")))
    tier, host = TierName("enrich"), HostName("h1")
    with Channel(zookeeper) as channel:
        channel.put(
            paths.host(host), HostFacts(name=host, address="127.0.1.1", zone="onprem", cpu=8, memory=8192)
        )
        channel.put(paths.host_record(host), HostRecord(state=HostState.DRAINING, by="anna"))
        spec = TierSpec(
            name=tier,
            kind=Kind.PROCESSING,
            mode=Mode.REALTIME,
            delivery=Delivery.AT_LEAST_ONCE,
            inputs=("hits",),
        )
        channel.put(paths.tier(tier), spec)
        channel.put(paths.owner(tier), OwnerRecord(owner=Incarnation(2)))
        incarnation = IncarnationSpec(
            tier=tier, incarnation=Incarnation(2), placement=placement, reason="drain h1", created_at=0
        )
        channel.put(paths.incarnation(tier, 2), incarnation)
        line = TierStatus(state=TierState.RUNNING, sentence="2 runs on h2, h3")
        channel.put(
            paths.CONTROLLER_STATUS,
            ControllerStatus(leader="c1", epoch=3, at=0, sentence="all is well", tiers={tier: line}),
        )
        change = ChangeRecord(
            id="drain_host.r1",
            spec=ChangeSpec(kind="drain", host=host),
            plan=Plan(),
            state=ChangeState.ACTIVE,
            by="anna",
            started_at=1,
        )
        channel.put(paths.change(change.id), change)
        upgrade = ChangeSpec(kind="upgrade", tier=tier, release="r7-3f9a2c1b")
        later = change.model_copy(
            update={"id": "upgrade_tier.r1", "spec": upgrade, "state": ChangeState.DONE, "started_at": 2}
        )
        channel.put(paths.change(later.id), later)
        alert = Alert(
            kind="host-lost",
            subject="h1",
            severity=Severity.WARNING,
            wait=60,
            happened="host h1 is lost",
            did="moves",
            do="look",
            since=1.0,
            fired_at=61.0,
            told_at=61.0,
        )
        channel.put(paths.ALERTS, AlertRecord(alerts={alert.key: alert}))
        silence = Silence(until=time.time() + 3600, by="cli:anna", at=1.0)
        channel.put(paths.ALERT_REQUESTS, AlertRequests(silences={"gap:*": silence}))
        headers = {"Authorization": f"Bearer {token}"}
        lost = state_of(client, headers)
        channel.create(
            paths.live(host), HostFacts(name=host, address="", zone="", cpu=1, memory=1), ephemeral=True
        )
        state = state_of(client, headers)
    assert lost["hosts"][0]["state"] == "lost", "no agent serves h1"
    (shown,) = lost["alerts"]["alerts"]
    assert (shown["key"], shown["state"], shown["did"], shown["do"]) == (
        "host-lost:h1",
        "told",
        "moves",
        "look",
    )
    assert [silence["key"] for silence in lost["alerts"]["silences"]] == ["gap:*"]
    assert [(host_row["name"], host_row["state"]) for host_row in state["hosts"]] == [("h1", "draining")]
    (tier_row,) = state["tiers"]
    assert (tier_row["name"], tier_row["state"], tier_row["incarnation"], tier_row["driver"]["host"]) == (
        "enrich",
        "running",
        2,
        None,
    ), "no agent has been given the driver"
    assert tier_row["inputs"] == ["hits"]
    assert [(change_row["what"], change_row["state"]) for change_row in state["changes"]] == [
        ("drain h1", "active"),
        ("upgrade enrich → r7-3f9a2c1b", "done"),
    ]
    assert state["controller"]["sentence"] == "all is well"


def test_while_the_channel_is_away_the_page_says_so(client, token, tmp_path, monkeypatch):
    monkeypatch.setenv("SLUICE_HOME", str(tmp_path))
    _watched.cache_clear()
    answer = client.get("/state", headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code == 503
    assert "sluice up" in answer.json()["stale"]["sentence"]
