"""The answer of another person on the page of a change that waits for approval."""

from types import SimpleNamespace

import pytest
from airflow.api_fastapi.core_api.security import get_user
from fastapi.testclient import TestClient

from sluice_airflow.hooks.sluice import SluiceHook
from sluice_airflow.page import app as page
from sluice_airflow.page.access import READER
from sluice_ops.model import paths
from sluice_ops.model.approval import Answer
from sluice_ops.queries import trail_history
from sluice_ops.queries.trail_history import TrailLine
from sluice_ops.snapshot.view import read_view
from tests.simulation.memory import MemoryChannel
from tests.unit.sluice_airflow.memory import waiting_pause

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:Using `httpx`")

CHANGE = "pause_pipeline.r1"
ANSWER = f"/changes/{CHANGE}/answer"


@pytest.fixture
def channel():
    """A pause that anna asked for, which waits."""
    channel = MemoryChannel()
    channel.put(paths.change(CHANGE), waiting_pause(CHANGE))
    return channel


@pytest.fixture
def allowed():
    """The DAGs whose forms the user may answer."""
    return {"pause_pipeline"}


@pytest.fixture
def client(monkeypatch, channel, allowed):
    """Return a function that makes a client of a user."""

    def of(user):
        overrides = {
            READER.dependency: lambda: None,
            get_user: lambda: SimpleNamespace(get_name=lambda: user),
            page.view_of: lambda: read_view(channel),
            page.channel_of: lambda: channel,
        }
        for dependency, value in overrides.items():
            monkeypatch.setitem(page.app.dependency_overrides, dependency, value)
        monkeypatch.setattr(page, "may_answer", lambda _user, dag_id: dag_id in allowed)
        return TestClient(page.app)

    return of


def written(channel):
    read = channel.read(paths.approval(CHANGE), Answer)
    return None if read is None else (read.value.by, read.value.approved, read.value.why)


def test_the_page_of_a_waiting_change_shows_what_it_asks(client, channel):
    shown = client("ben").get(f"/changes/{CHANGE}").json()
    assert (shown["asked"]["by"], shown["asked"]["plan"]) == ("anna", "every tier writes nothing")
    assert "always needs a second person" in shown["asked"]["why"]
    assert shown["may_answer"] is True
    channel.put(paths.approval(CHANGE), Answer(approved=True, by="cli:ben", at=1.0))
    assert client("ben").get(f"/changes/{CHANGE}").json()["asked"] is None, "it was answered"


def test_a_change_has_its_trail_of_the_queue_and_of_postgresql(client, tmp_path, monkeypatch):
    monkeypatch.setenv("SLUICE_HOME", str(tmp_path))
    client("ben").post(ANSWER, json={"approved": True})
    without = client("ben").get(f"/changes/{CHANGE}").json()
    assert [(entry["outcome"], entry["by"]) for entry in without["trail"]] == [("approved", "airflow:ben")]
    assert "endpoints.json" in without["trail_missing"]
    more = {"layer": None, "what": "pause", "sentence": ""}
    moved = TrailLine(role="controller", name="1", at=1.0, by="a", change=CHANGE, outcome="asked", **more)
    monkeypatch.setattr(trail_history, "_stored", lambda *_: [moved])
    monkeypatch.setattr(SluiceHook, "endpoints", lambda _: None)
    found = client("ben").get(f"/changes/{CHANGE}").json()
    assert [entry["outcome"] for entry in found["trail"]] == ["asked", "approved"]
    assert found["trail_missing"] is None


@pytest.mark.parametrize(("approved", "why"), [(True, ""), (False, "the report runs")])
def test_an_answer_on_the_page_is_the_answer_on_the_channel(client, channel, approved, why):
    assert client("ben").post(ANSWER, json={"approved": approved, "why": why}).status_code == 204
    assert written(channel) == ("airflow:ben", approved, why)
    again = client("eve").post(ANSWER, json={"approved": True})
    assert (again.status_code, "was answered" in again.json()["detail"]) == (409, True)


def test_the_person_who_asked_can_refuse_but_not_approve(client, channel):
    own = client("anna").post(ANSWER, json={"approved": True})
    assert (own.status_code, written(channel)) == (409, None)
    assert "another person has to approve it" in own.json()["detail"]
    assert client("anna").post(ANSWER, json={"approved": False, "why": "mistake"}).status_code == 204


def test_a_refusal_needs_its_reason(client, channel):
    refused = client("ben").post(ANSWER, json={"approved": False, "why": " "})
    assert (refused.status_code, written(channel)) == (422, None)
    assert refused.json()["detail"] == "a refusal needs its reason, for the person who asked"


def test_only_a_user_who_may_answer_forms_in_airflow_answers(client, channel, allowed):
    allowed.clear()
    assert client("vic").get(f"/changes/{CHANGE}").json()["may_answer"] is False
    assert client("vic").post(ANSWER, json={"approved": True}).status_code == 403
    assert written(channel) is None


def test_an_unknown_change_is_refused_with_the_command_that_lists(client, allowed):
    allowed.add(None)
    answer = client("ben").post("/changes/old/answer", json={"approved": True})
    assert answer.status_code == 409
    assert "no change is named 'old'; `sluice approve` lists" in answer.json()["detail"]
