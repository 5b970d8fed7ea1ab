"""The log of a tier's driver in Airflow: its last lines, or the host and the command to see it."""

import pytest
from fastapi.testclient import TestClient

from sluice_airflow.hooks.sluice import SharedChannel
from sluice_airflow.page.access import READER
from sluice_airflow.page.app import app
from sluice_ops.channel import ChannelAwayError
from sluice_ops.model import paths
from sluice_ops.model.ids import HostName, Incarnation, TierName
from sluice_ops.model.incarnation import IncarnationReport, IncarnationSpec, OwnerRecord, Placement, State
from tests.unit.sluice_airflow.memory import MemoryChannel

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:Using `httpx`")


@pytest.fixture
def channel(monkeypatch):
    """The tier `entry`: incarnation 3 failed on h1, and incarnation 4 owns the tier on h2."""
    channel, tier = MemoryChannel(), TierName("entry")
    for number, host, state in ((3, "h1", State.FAILED), (4, "h2", State.RUNNING)):
        spec = IncarnationSpec(
            tier=tier,
            incarnation=Incarnation(number),
            placement=Placement(driver=HostName(host), slots=()),
            reason="",
            created_at=0,
        )
        channel.put(paths.incarnation(tier, number), spec)
        channel.put(paths.report(tier, number), IncarnationReport(state=state, since=0, pid=1))
    channel.put(paths.owner(tier), OwnerRecord(owner=Incarnation(4)))
    channel.put(paths.owner("counts"), OwnerRecord())
    monkeypatch.setattr(SharedChannel, "get", lambda _shared: channel)
    return channel


@pytest.fixture
def client(monkeypatch, own_home):  # noqa: ARG001 - the home has the logs
    """A client that Airflow lets in; `tests/integration` has the one that Airflow refuses."""
    monkeypatch.setitem(app.dependency_overrides, READER.dependency, lambda: None)
    return TestClient(app)


def write_log(home, path, text):
    file = home / "hosts" / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_the_last_lines_of_the_owners_driver_are_shown(client, channel, own_home):
    del channel
    write_log(own_home, "h2/units/driver-entry-4/log", "<b>first</b>\nsecond\nthird\n")
    log = client.get("/log/lines?tier=entry&lines=2").json()
    assert (log["incarnation"], log["host"], log["lines"]) == (4, "h2", ["second", "third"])
    assert log["sentence"].endswith("hosts/h2/units/driver-entry-4/log on host h2:")
    assert log["incarnations"] == [
        {"number": 4, "state": "running", "owner": True},
        {"number": 3, "state": "failed", "owner": False},
    ]


def test_lines_before_a_rotation_are_shown_as_well(client, channel, own_home):
    del channel
    write_log(own_home, "h2/units/driver-entry-4/log.1", "first\nsecond\n")
    write_log(own_home, "h2/units/driver-entry-4/log", "third\n")
    assert client.get("/log/lines?tier=entry&lines=2").json()["lines"] == ["second", "third"]


def test_the_log_of_a_failed_driver_is_shown_after_its_end(client, channel, own_home):
    del channel
    write_log(own_home, "h1/ended/driver-entry-3.log", "no such column: at\n")
    log = client.get("/log/lines?tier=entry&incarnation=3").json()
    assert (log["host"], log["lines"]) == ("h1", ["no such column: at"])


def test_for_a_log_on_another_machine_the_host_and_the_command_are_named(client, channel):
    del channel
    log = client.get("/log/lines?tier=entry").json()
    assert log["lines"] == []
    assert log["sentence"] == (
        "The log of driver-entry-4 is a file of host h2, and Airflow's API server runs elsewhere. "
        "On h2, as the user of its agent: sluice logs h2/driver-entry-4 -n 500 -f"
    )


def test_a_host_of_this_machine_without_the_log_is_told_apart(client, channel, own_home):
    del channel
    (own_home / "hosts" / "h2").mkdir(parents=True)
    assert "20 others ended since" in client.get("/log/lines?tier=entry").json()["sentence"]


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("tier=..%2F..%2Fetc", "there is no tier '../../etc'; the pipeline has counts, entry"),
        ("tier=counts", "tier counts has not run yet: sluice start counts"),
        ("tier=entry&incarnation=2", "tier entry has no incarnation 2; it has 3, 4"),
    ],
)
def test_an_unknown_driver_is_refused_with_what_there_is(client, channel, query, sentence):
    del channel
    answer = client.get(f"/log/lines?{query}")
    assert (answer.status_code, answer.json()["sentence"]) == (404, sentence)


def test_while_the_channel_is_away_the_log_page_says_so(client, monkeypatch):
    def away(_shared):
        message = "ZooKeeper does not answer"
        raise ChannelAwayError(message)

    monkeypatch.setattr(SharedChannel, "get", away)
    answer = client.get("/log/lines?tier=entry")
    assert (answer.status_code, answer.json()["sentence"]) == (503, "ZooKeeper does not answer")


def test_a_query_cannot_ask_for_the_whole_log(client, channel):
    del channel
    assert client.get("/log/lines?tier=entry&lines=10001").status_code == 422


def test_the_log_page_writes_what_it_reads_as_text(client):
    page = client.get("/log").text
    assert "textContent" in page
    assert "innerHTML" not in page
