"""A broker whose network loses packets, and then all of them for a minute: tiers wait and say for what, and what waited drains.

The broker is in a namespace of its own. What is fed reaches it from there, so that records go on to come while the tiers are cut off.
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
from tests.integration.sluice.delivered import delivered_once_in_order, numbered
from tests.lab import ROOT, Lab, free_ports, opened, until
from tests.lossy_link import AVAILABLE, NEEDS, Wire, wired

pytestmark = [pytest.mark.timeout(900), pytest.mark.long, pytest.mark.skipif(not AVAILABLE, reason=NEEDS)]

TIERS = {"entry": "h1", "enrich": "h2", "outbound": "h3"}
RATE = 50
LOSS, LOSS_SECONDS = 0.05, 60
CUT_SECONDS = 60
SAID_SECONDS = 25
"""So soon a tier says that Kafka does not answer: it asks every two seconds, and waits ten for the answer."""
DRAINED_SECONDS = 120
LAG = "select coalesce(max(lag), 0) from tier_progress"


@pytest.fixture
def wire() -> Iterator[Wire]:
    with wired() as made:
        yield made


@pytest.fixture
def broker(wire: Wire, tmp_path: Path) -> Iterator[str]:
    """Run one at the wire's far end; yield its address."""
    port, quorum = free_ports(2)
    where = Layout(
        home=tmp_path / "broker",
        ports=replace(Ports.above(LOWEST_BASE), kafka_controller=quorum),
        site=ROOT / "site.yaml",
    )
    where.make_folders()
    fetch_jars.fetch(where, threading.Event())
    address = f"{wire.address}:{port}"
    own = f"listeners=PLAINTEXT://{address},CONTROLLER://127.0.0.1:{quorum}\nadvertised.listeners=PLAINTEXT://{address}\n"
    settings = kafka.properties(where, users=False) + own  # of a key that is said twice, the last one holds
    service = kafka.service(where, users=False)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(kafka, "properties", lambda _where, **_how: settings)
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
    with opened(home, kafka=broker) as made:
        yield made


def delivered(lab: Lab) -> int:
    return lab.delivered()[0]


def lag(lab: Lab) -> int:
    """Return the most records that wait for a tier."""
    return int(lab.query(LAG)[0][0])


def waits_for(lab: Lab, tier: str) -> str:
    """Return what a tier says that it waits for."""
    said = lab.report(tier, 1)
    return "" if said is None else said.away or ""


def test_what_waited_drains_and_nothing_is_lost_or_twice(lab: Lab, wire: Wire) -> None:
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
        f"{LOSS:.0%} lost: {dropped} packets dropped, {flowed} of about {RATE * LOSS_SECONDS} records delivered meanwhile"
    )
    assert dropped > RATE
    assert flowed > RATE * LOSS_SECONDS / 2, "records flow on"
    until("what waited has drained", lambda: lag(lab) < 5 * RATE, DRAINED_SECONDS)

    wire.cut()
    began = time.monotonic()
    for tier in TIERS:
        until(
            f"{tier} says that it waits for Kafka",
            lambda tier=tier: "Kafka" in waits_for(lab, tier),
            SAID_SECONDS,
        )
    print(f"all say so after {time.monotonic() - began:.0f} s: {waits_for(lab, 'entry')}")
    stood = delivered(lab)
    time.sleep(max(0.0, began + CUT_SECONDS - time.monotonic()))
    assert delivered(lab) - stood <= RATE, "nothing comes through"
    assert wire.mend() > 0
    mended = time.monotonic()
    most = until(
        "the lag that has grown is seen",
        lambda: found if (found := lag(lab)) > RATE * CUT_SECONDS / 2 else 0,
        DRAINED_SECONDS,
    )
    until(
        "what waited has drained",
        lambda: lag(lab) < 5 * RATE and delivered(lab) > stood + RATE * CUT_SECONDS / 2,
        DRAINED_SECONDS,
    )
    print(f"{most} waited, and had drained {time.monotonic() - mended:.0f} s after the network was mended")
    for tier in TIERS:
        until(f"{tier} waits for nothing", lambda tier=tier: not waits_for(lab, tier), SAID_SECONDS)
        report = lab.report(tier, 1)
        assert report is not None
        assert report.state is State.RUNNING, "the same driver all the while"
    delivered_once_in_order(lab, numbered(lab.stop_feed()))
