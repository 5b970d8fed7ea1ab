"""Logs in Airflow: from whichever host has them, to users who may read the logs of tasks."""

import pytest
from airflow.api_fastapi.core_api.security import get_user
from fastapi.testclient import TestClient

from sluice_airflow.page import app as page
from sluice_airflow.page.access import READER
from sluice_ops.channel import ChannelAwayError
from sluice_ops.model import paths
from sluice_ops.model.ids import HostName, Incarnation, TierName
from sluice_ops.model.incarnation import IncarnationSpec, OwnerRecord, Placement
from sluice_ops.model.logs import LogPart
from sluice_ops.model.tier import Delivery, Kind, Mode, TierSpec
from sluice_ops.operations.log_requests import LogServer
from sluice_ops.snapshot.view import read_view
from tests.simulation.memory import MemoryChannel
from tests.unit.sluice_ops.log_serving import serving

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:Using `httpx`")

H1, H2, ENTRY = HostName("h1"), HostName("h2"), TierName("entry")


class Channel(MemoryChannel):
    connected = True

    def on_change(self, _follower):
        """Tests look by themselves."""


@pytest.fixture
def channel():
    """The tier `entry`: incarnation 3 ran on h1, which is lost, and 4 owns the tier on h2."""
    channel = Channel()
    spec = TierSpec(
        name=ENTRY, kind=Kind.ENTRY, mode=Mode.REALTIME, delivery=Delivery.AT_LEAST_ONCE, inputs=("raw",)
    )
    channel.put(paths.tier(ENTRY), spec)
    for number, host in ((3, H1), (4, H2)):
        spec = IncarnationSpec(
            tier=ENTRY,
            incarnation=Incarnation(number),
            placement=Placement(driver=host, slots=()),
            reason="",
            created_at=0,
        )
        channel.put(paths.incarnation(ENTRY, number), spec)
        channel.put(paths.host(host), OwnerRecord())
        channel.put(paths.host_record(host), OwnerRecord())
    channel.put(paths.owner(ENTRY), OwnerRecord(owner=Incarnation(4)))
    channel.put(paths.live(H2), OwnerRecord())
    return channel


@pytest.fixture
def asked():
    """The requests that the agent of h2 answered."""
    return []


@pytest.fixture
def agent(channel, asked):
    def read(request):
        asked.append((request.log, request.lines, request.after))
        if request.after is not None:
            return LogPart(text="fourth\n", position=27)
        return LogPart(text="second\nthird\n", position=20)

    server = LogServer(channel, paths.host_logs(H2), H2, read)
    server.look()
    with serving(server):
        yield


@pytest.fixture
def readable():
    """The DAGs whose logs the user may read."""
    return {"tier_entry"}


@pytest.fixture
def client(monkeypatch, channel, readable):
    """A client that Airflow lets in; `tests/integration` has the one that Airflow refuses."""
    overrides = {
        READER.dependency: lambda: None,
        get_user: lambda: "anna",
        page.view_of: lambda: read_view(channel),
        page.channel_of: lambda: channel,
    }
    for dependency, value in overrides.items():
        monkeypatch.setitem(page.app.dependency_overrides, dependency, value)
    monkeypatch.setattr(page, "may_read_log", lambda _user, dag_id: dag_id in readable)
    return TestClient(page.app)


@pytest.mark.usefixtures("agent")
def test_the_log_of_the_owners_driver_comes_from_its_host(client, asked):
    log = client.get("/log?name=entry&lines=2").json()
    assert log == {
        "name": "h2/driver-entry-4",
        "text": "second\nthird\n",
        "position": 20,
        "cut": False,
    }
    later = client.get("/log?name=h2/driver-entry-4&after=20").json()
    assert (later["text"], later["position"]) == ("fourth\n", 27)
    assert asked == [("driver-entry-4", 2, None), ("driver-entry-4", 0, 20)]


@pytest.mark.usefixtures("agent")
def test_a_log_needs_the_right_to_read_logs_of_tasks(client, readable, asked):
    assert client.get("/log?name=h2").status_code == 403, "an agent is not a part of one tier"
    readable.clear()
    refused = client.get("/log?name=entry")
    assert refused.status_code == 403
    assert refused.json()["detail"].endswith("do not let you read the log of h2/driver-entry-4")
    assert asked == []
    readable.add(None)
    assert client.get("/log?name=h2").json()["name"] == "h2"


def test_the_log_of_a_lost_host_says_since_when_and_what_to_do(client):
    answer = client.get("/log?name=driver-entry-3")
    assert answer.status_code == 503
    assert "host h1 is lost" in answer.json()["detail"]


def test_an_unknown_log_is_refused_with_what_there_is(client):
    answer = client.get("/log?name=..%2F..%2Fetc")
    assert answer.status_code == 404
    assert (
        "there is no tier, host or unit '../../etc'; tiers: entry; hosts: h1, h2" in answer.json()["detail"]
    )


def test_while_the_channel_is_away_the_log_says_so(client, channel, monkeypatch):
    def away(*_args, **_kwargs):
        message = "ZooKeeper does not answer"
        raise ChannelAwayError(message)

    seen = read_view(channel)
    monkeypatch.setitem(page.app.dependency_overrides, page.view_of, lambda: seen)
    monkeypatch.setattr(channel, "exists", away)
    answer = client.get("/log?name=entry")
    assert (answer.status_code, answer.json()["detail"]) == (503, "ZooKeeper does not answer")


def test_a_query_cannot_ask_for_the_whole_log(client):
    assert client.get("/log?name=entry&lines=10001").status_code == 422
