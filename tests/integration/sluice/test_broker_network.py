"""A broker's network loses packets, and then all of them for a minute: tiers wait and report it,
and then catch up.

The broker is in its own network namespace. The feed runs there too, so records keep coming while
the tiers are cut off.
"""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sluice_ops.local import fetch_jars
from sluice_ops.local.layout import LOWEST_BASE, Layout, Ports
from sluice_ops.local.services import kafka
from sluice_ops.model.incarnation import State
from tests.integration.sluice.delivery_checks import delivered_once_in_order, numbered
from tests.lab import ROOT, Lab, free_ports, opened, until
from tests.lossy_link import AVAILABLE, NEEDS, Wire, wired

pytestmark = [pytest.mark.timeout(900), pytest.mark.long, pytest.mark.skipif(not AVAILABLE, reason=NEEDS)]

TIERS = {"entry": "h1", "enrich": "h2", "outbound": "h3"}
RATE = 50
LOSS, LOSS_SECONDS = 0.05, 60
CUT_SECONDS = 60
REPORT_SECONDS = 25
"""The time until a tier reports that Kafka does not answer: it asks every two seconds, and waits
ten for an answer.
"""
DRAINED_SECONDS = 120
LAG = "select coalesce(max(lag), 0) from tier_progress"


@pytest.fixture
def wire() -> Iterator[Wire]:
    with wired() as lossy_link:
        yield lossy_link


@pytest.fixture
def broker(wire: Wire, tmp_path: Path) -> Iterator[str]:
    """Run a broker at the far end of the link; yield its address."""
    port, quorum = free_ports(2)
    layout = Layout(
        home=tmp_path / "broker",
        ports=replace(Ports.above(LOWEST_BASE), kafka_controller=quorum),
        site=ROOT / "site.yaml",
    )
    layout.make_folders()
    fetch_jars.fetch(layout, threading.Event())
    address = f"{wire.address}:{port}"
    listeners = (
        f"listeners=PLAINTEXT://{address},CONTROLLER://127.0.0.1:{quorum}\n"
        f"advertised.listeners=PLAINTEXT://{address}\n"
    )
    settings = (
        kafka.properties(layout, users=False) + listeners
    )  # if a key is set twice, Kafka uses the last value
    service = kafka.service(layout, users=False)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(kafka, "properties", lambda _where, **_how: settings)
        service.prepare()
    with (tmp_path / "broker.log").open("w") as log:
        process = subprocess.Popen(wire.inside(*service.program.command), stdout=log, stderr=log)
    try:
        yield address
    finally:
        process.terminate()
        process.wait(60)


@pytest.fixture
def lab(broker: str, tmp_path: Path) -> Iterator[Lab]:
    home = tmp_path / "home"
    home.mkdir()
    with opened(home, kafka=broker) as opened_lab:
        yield opened_lab


def delivered(lab: Lab) -> int:
    return lab.delivered()[0]


def lag(lab: Lab) -> int:
    """Return the largest lag of a tier, in records."""
    return int(lab.query(LAG)[0][0])


def waits_for(lab: Lab, tier: str) -> str:
    """Return what a tier reports that it waits for."""
    report = lab.report(tier, 1)
    return "" if report is None else report.away or ""


def test_lag_drains_and_no_record_is_lost_or_duplicated(lab: Lab, wire: Wire) -> None:
    for tier, host in TIERS.items():
        lab.start_owner(tier, 1, host)
        lab.wait_for(tier, 1, State.RUNNING)
    words = [sys.executable, "-m", "hits.feed", "--rate", str(RATE), "--first", "1", "--json"]
    lab.processes["feed"] = subprocess.Popen(
        wire.inside(*words), env=lab.env, cwd=ROOT, stdout=subprocess.PIPE
    )
    until("records are delivered", lambda: delivered(lab) > 5 * RATE)

    before = delivered(lab)
    wire.lose(LOSS)
    time.sleep(LOSS_SECONDS)
    flowed, dropped = delivered(lab) - before, wire.mend()
    print(
        f"{LOSS:.0%} lost: {dropped} packets dropped, {flowed} of about {RATE * LOSS_SECONDS} records "
        "delivered meanwhile"
    )
    assert dropped > RATE
    assert flowed > RATE * LOSS_SECONDS / 2, "records flow on"
    until("the lag has drained", lambda: lag(lab) < 5 * RATE, DRAINED_SECONDS)

    wire.cut()
    began = time.monotonic()
    for tier in TIERS:
        until(
            f"{tier} says that it waits for Kafka",
            lambda tier=tier: "Kafka" in waits_for(lab, tier),
            REPORT_SECONDS,
        )
    print(f"all tiers report it after {time.monotonic() - began:.0f} s: {waits_for(lab, 'entry')}")
    before_cut = delivered(lab)
    time.sleep(max(0.0, began + CUT_SECONDS - time.monotonic()))
    assert delivered(lab) - before_cut <= RATE, "no record comes through"
    assert wire.mend() > 0
    mended_at = time.monotonic()
    largest_lag = until(
        "the grown lag is reported",
        lambda: current if (current := lag(lab)) > RATE * CUT_SECONDS / 2 else 0,
        DRAINED_SECONDS,
    )
    until(
        "the lag has drained",
        lambda: lag(lab) < 5 * RATE and delivered(lab) > before_cut + RATE * CUT_SECONDS / 2,
        DRAINED_SECONDS,
    )
    print(
        f"a lag of {largest_lag} records drained {time.monotonic() - mended_at:.0f} s after the network was "
        "mended"
    )
    for tier in TIERS:
        until(f"{tier} waits for nothing", lambda tier=tier: not waits_for(lab, tier), REPORT_SECONDS)
        report = lab.report(tier, 1)
        assert report is not None
        assert report.state is State.RUNNING, "the same driver runs on"
    delivered_once_in_order(lab, numbered(lab.stop_feed()))
