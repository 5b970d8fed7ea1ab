"""`sluice alert` lists what is wrong, silences it with an end, and tests the channels."""

import json
import time
from contextlib import nullcontext

import pytest
from simulation.memory import MemoryChannel
from typer.testing import CliRunner

from sluice_ops.main import app
from sluice_ops.model import paths
from sluice_ops.model.alert import Alert, AlertRecord, AlertRequests, ChannelHealth
from sluice_ops.model.exit_codes import FAILED, OK, WRONG_USAGE
from sluice_ops.operations import alerts
from sluice_ops.planning.alerts.catalogue import BY_NAME
from sluice_ops.queries.alerts import notes

LOST = BY_NAME["host-lost"].condition("h1", host="h1")
LAG = BY_NAME["tier-lags"].condition("counts", tier="counts")


@pytest.fixture
def channel(monkeypatch):
    memory = MemoryChannel()
    memory.put(paths.ALERT_REQUESTS, AlertRequests())
    monkeypatch.setattr("sluice_ops.operations.connect.open_channel", lambda: nullcontext(memory))
    monkeypatch.setattr("sluice_ops.cli.alert.TEST_SECONDS", 1.0)
    monkeypatch.setattr("sluice_ops.operations.alerts.POLL_SECONDS", 0.01)
    return memory


def alert(*words):
    return CliRunner().invoke(app, ["alert", *words])


def record(**more):
    now = time.time()
    told = Alert(**LOST.model_dump(), since=now - 300, fired_at=now - 240, told_at=now - 240)
    hidden = Alert(**LAG.model_dump(), since=now - 300, explained_by=LOST.key)
    return AlertRecord(alerts={each.key: each for each in (told, hidden)}, **more)


def test_the_list_says_what_happened_and_what_to_do(channel):
    assert "Nothing is wrong." in alert().stdout
    dead = ChannelHealth(failed_since=time.time() - 600, error="no route")
    channel.put(paths.ALERTS, record(channels={"mailto": dead}))
    shown = alert().stdout
    assert "host h1 is lost" in shown
    assert f"explained by {LOST.key}" in shown
    assert f"{LOST.key}: {LOST.do}" in shown
    assert "Channel mailto takes no alerts for 10 min: no route" in shown
    listed = json.loads(alert("list", "--json").stdout)
    assert [line["key"] for line in listed["alerts"]] == [LOST.key, LAG.key]


def test_a_silence_has_an_end_and_a_place_in_the_trail(channel):
    channel.put(paths.ALERTS, record())
    done = alert("silence", "host-lost:*", "--for", "2h")
    assert done.exit_code == OK
    (key, silence), *_ = alerts.read_requests(channel).silences.items()
    assert key == "host-lost:*"
    assert 7100 < silence.until - time.time() <= 7200
    assert "silenced" in alert().stdout
    assert channel.children(f"{paths.TRAIL}/operator"), "the trail has it"
    assert alert("unsilence", "host-lost:*").exit_code == OK
    assert alerts.read_requests(channel).silences == {}
    refused = alert("unsilence", "host-lost:*")
    assert (refused.exit_code, refused.stdout) == (WRONG_USAGE, "")


@pytest.mark.parametrize("words", [("silence",), ("silence", "x", "--for", "soon"), ("test", "fax")])
def test_a_wrong_use_is_refused(channel, words):
    channel.put(paths.ALERTS, record(channels={"mailto": ChannelHealth()}))
    assert alert(*words).exit_code == WRONG_USAGE


@pytest.mark.usefixtures("channel")
def test_without_a_channel_a_test_says_what_to_write():
    refused = alert("test")
    assert refused.exit_code == WRONG_USAGE
    assert "alerts: channels:" in refused.stderr


@pytest.mark.parametrize(("error", "code"), [("", OK), ("no route", FAILED)])
def test_a_test_tells_what_each_channel_did(channel, monkeypatch, error, code):
    channel.put(paths.ALERTS, record(channels={"mailto": ChannelHealth()}))
    requested = alerts.request_test

    def answered(*words):
        identity = requested(*words)
        channel.put(paths.ALERTS, record(tested=identity, results={"mailto": error}))
        return identity

    monkeypatch.setattr(alerts, "request_test", answered)
    done = alert("test", "mailto")
    assert done.exit_code == code
    assert done.stdout.strip() == f"mailto: {'failed: no route' if error else 'taken'}"


def test_a_test_without_an_answer_fails_with_the_next_step(channel):
    channel.put(paths.ALERTS, record(channels={"mailto": ChannelHealth()}))
    done = alert("test")
    assert done.exit_code == FAILED
    assert "sluice status" in done.stdout


def test_before_a_controller_made_the_node_a_silence_is_refused(channel):
    channel.delete(paths.ALERT_REQUESTS)
    done = alert("silence", LOST.key)
    assert done.exit_code == FAILED
    assert "is a controller running?" in done.stderr


def test_the_status_names_alerts_and_dead_channels():
    assert notes(AlertRecord()) == []
    dead = ChannelHealth(failed_since=time.time() - 600, error="no route")
    lines = notes(record(channels={"mailto": dead}))
    assert lines[0] == "1 alert, 0 of them critical: `sluice alert` lists them"
    assert "sluice alert test mailto" in lines[1]
