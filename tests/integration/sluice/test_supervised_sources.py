"""Killed, frozen and fenced sources are told, on real Kafka and ZooKeeper; stopped ones are not."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from sluice.ingest.process import TAKEN_OVER_EXIT
from sluice_ops.channel import Channel
from sluice_ops.model import paths
from sluice_ops.model.access import Role
from sluice_ops.model.alert import Alert, AlertRecord
from tests.integration.sluice.operated_lab import running, sluice
from tests.integration.sluice.test_ingest import Process, line
from tests.lab import Lab, free_ports, until

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]
FIRED_SECONDS = 60
"""The session ends after 6 s, the alert waits for 30 s, and the controller looks every 5 s."""


@pytest.fixture(scope="module", autouse=True)
def controller(lab: Lab) -> Iterator[None]:
    with running(lab, "controller"):
        yield


def source_line(lab: Lab, name: str) -> Any:
    """Return what `sluice status` shows of a source; None if nothing."""
    lines = [each for each in sluice(lab, "status")["sources"] if each["name"] == name]
    return lines[0] if lines else None


def told(lab: Lab) -> dict[str, Alert]:
    """Return the alerts that were told, by key."""
    read = lab.channel.read(paths.ALERTS, AlertRecord)
    alerts_by_key = {} if read is None else read.value.alerts
    return {key: alert for key, alert in alerts_by_key.items() if alert.told_at is not None}


def alerts(lab: Lab, name: str) -> dict[str, Alert]:
    """Return the alerts about a source that were told, by kind."""
    return {alert.kind: alert for alert in told(lab).values() if alert.subject.startswith(f"{name}@raw")}


def started(lab: Lab, folder: Path, name: str) -> Process:
    """Start a source that follows the logs of a folder, and wait until the channel has it."""
    log = folder / "app.log"
    with log.open("a") as file:
        file.write(f"{line(1)}\n")
    source = Process(lab, "files", f"{folder}/*.log", "--name", name)
    until("the source has figures", lambda: (source_line(lab, name) or {}).get("records"), 60)
    return source


def test_a_killed_source_is_told_and_shown_and_continues(lab: Lab, tmp_path: Path) -> None:
    source = started(lab, tmp_path, "killed")
    shown = source_line(lab, "killed")
    assert (shown["state"], shown["kind"], shown["stream"], shown["pid"]) == (
        "running",
        "files",
        "raw",
        source.process.pid,
    )
    (file,) = shown["files"]
    assert (file["path"], file["unread"]) == (str(tmp_path / "app.log"), 0)
    source.process.kill()
    source.process.wait()
    until("the alert is told", lambda: "source-down" in alerts(lab, "killed"), FIRED_SECONDS)
    alert = alerts(lab, "killed")["source-down"]
    assert alert.happened.startswith("source killed of stream raw on ")
    assert "sluice ingest forget killed --stream raw" in alert.do
    shown = source_line(lab, "killed")
    assert shown["state"] == "lost"
    assert any("Source killed of raw" in note for note in sluice(lab, "status")["notes"])

    source.process = source.started()
    until("the source runs again", lambda: source_line(lab, "killed")["state"] == "running", 60)
    (failure,) = source_line(lab, "killed")["failures"]
    assert failure["how"] == "its process was gone, and left no message"
    time.sleep(15)
    assert alerts(lab, "killed").keys() <= {"source-down"}, "the same failure is told once"
    assert source.end() == 0
    assert source_line(lab, "killed") is None


def test_a_frozen_source_is_told_and_recovers(lab: Lab, tmp_path: Path) -> None:
    source = started(lab, tmp_path, "frozen")
    source.process.send_signal(signal.SIGSTOP)
    try:
        until("the alert is told", lambda: "source-down" in alerts(lab, "frozen"), FIRED_SECONDS)
        assert source_line(lab, "frozen")["state"] == "lost"
    finally:
        source.process.send_signal(signal.SIGCONT)
    until("the source is back", lambda: source_line(lab, "frozen")["state"] == "running", 60)
    assert source_line(lab, "frozen")["failures"] == []
    assert source.end() == 0


def broker(lab: Lab) -> psutil.Process:
    """Return the lab's broker."""
    supervisord = psutil.Process(int((lab.home / "run" / "supervisord.pid").read_text()))
    (found,) = [each for each in supervisord.children() if "kafka.Kafka" in each.cmdline()]
    return found


def test_requests_that_wait_for_a_frozen_kafka_are_told_and_written_later(lab: Lab) -> None:
    port, metrics = free_ports(2)
    words = ("--port", str(port), "--metrics", f"127.0.0.1:{metrics}")
    source = Process(lab, "http", "--name", "web", *words)
    until("the source is registered", lambda: source_line(lab, "web"), 60)
    addresses = [each for each in sluice(lab, "metrics") if each["labels"]["role"] == "source"]
    assert [address["targets"] for address in addresses] == [[f"127.0.0.1:{metrics}"]]

    def send() -> int:
        headers = {"Content-Type": "application/json", "Idempotency-Key": "one"}
        url = f"http://127.0.0.1:{port}/records"
        return httpx.post(url, content="{}", headers=headers, timeout=40).status_code

    kafka = broker(lab)
    kafka.suspend()
    try:
        assert send() == 503
        until("the alert is told", lambda: "source-stands-still:raw" in told(lab), 2 * FIRED_SECONDS)
        shown = source_line(lab, "web")
        assert shown["state"] == "stands still"
        assert shown["waiting_bytes"] == len("{}")
    finally:
        kafka.resume()
    until("the request is written", lambda: send() == 200, 60)
    until("the source runs", lambda: source_line(lab, "web")["state"] == "running", 30)
    assert source_line(lab, "web")["failures"] == []
    assert source.end() == 0


def test_a_stopped_source_is_no_alert(lab: Lab, tmp_path: Path) -> None:
    source = started(lab, tmp_path, "stopped")
    assert source.end() == 0
    assert source_line(lab, "stopped") is None
    time.sleep(45)
    assert alerts(lab, "stopped") == {}


def test_a_second_start_of_a_name_ends_the_first_process_and_is_told(lab: Lab, tmp_path: Path) -> None:
    first = started(lab, tmp_path, "twice")
    second = Process(lab, "files", f"{tmp_path}/*.log", "--name", "twice")
    until(
        "the second process is registered",
        lambda: source_line(lab, "twice")["pid"] == second.process.pid,
        60,
    )
    with (tmp_path / "app.log").open("a") as file:
        file.write(f"{line(2)}\n")
    assert first.process.wait(30) == TAKEN_OVER_EXIT
    until("the take-over is told", lambda: "source-taken-over" in alerts(lab, "twice"), 30)
    assert "give each a name of its own" in alerts(lab, "twice")["source-taken-over"].do
    assert source_line(lab, "twice")["state"] == "running"
    assert second.end() == 0


def test_a_lost_source_is_forgotten_on_request(lab: Lab, tmp_path: Path) -> None:
    source = started(lab, tmp_path, "lost")
    source.process.kill()
    source.process.wait()
    until("the source is lost", lambda: source_line(lab, "lost")["state"] == "lost", 30)
    assert sluice(lab, "ingest", "forget", "lost", "--stream", "raw") == {"forgotten": "lost@raw"}
    assert source_line(lab, "lost") is None


def test_a_source_without_its_credential_runs_on_and_says_so(lab: Lab, tmp_path: Path) -> None:
    access = lab.endpoints.access
    assert access is not None
    credential = access.credentials / Role.SOURCE
    hidden = credential.rename(credential.with_name("hidden"))
    try:
        (tmp_path / "app.log").write_text(f"{line(1)}\n")
        source = Process(lab, "files", f"{tmp_path}/*.log", "--name", "unseen")
        until("the source says so", lambda: "is not registered in ZooKeeper" in source.log.read_text(), 60)
        assert source.end() == 0
        with Channel(lab.endpoints.zookeeper) as channel:
            assert not channel.exists(paths.source("unseen@raw"))
    finally:
        hidden.rename(credential)
