"""One of three brokers is stopped or killed while records flow: records flow on, each once and in
order.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sluice_ops.model.incarnation import State
from tests.integration.sluice.delivery_checks import delivered_once_in_order, numbered
from tests.integration.sluice.test_frozen_broker import origins
from tests.lab import Lab, opened, until
from tests.three_brokers import NODES, ThreeBrokers

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]
TIERS = {"entry": "h1", "enrich": "h2", "counts": "h3", "outbound": "h3"}
STREAMS = ("raw", "hits", "enriched")
RATE = 100
FLOWS_SECONDS = 30.0
"""The time after a broker's end in which records fed since then are delivered."""
ROUNDS: tuple[Callable[[ThreeBrokers, int], None], ...] = (
    ThreeBrokers.kill,
    ThreeBrokers.stop,
    ThreeBrokers.kill,
)


@pytest.fixture
def three(tmp_path: Path) -> Iterator[ThreeBrokers]:
    brokers = ThreeBrokers(tmp_path)
    yield brokers
    brokers.end()


@pytest.fixture
def lab(three: ThreeBrokers, tmp_path: Path) -> Iterator[Lab]:
    home = tmp_path / "home"
    home.mkdir()
    with opened(home, "hits", "hosts: []\nreplication: 3\n", kafka=three.address) as opened_lab:
        yield opened_lab


def test_records_flow_on_whichever_broker_ends(lab: Lab, three: ThreeBrokers) -> None:
    for tier, host in TIERS.items():
        lab.start_owner(tier, 1, host)
        lab.wait_for(tier, 1, State.RUNNING)
    lab.start_feed(RATE)
    until("records are delivered", lambda: lab.delivered()[0] > 5 * RATE)
    for number, end in enumerate(ROUNDS):
        node = three.leader(STREAMS[number])
        before, ended = lab.delivered()[0], time.monotonic()
        end(three, node)
        until(
            "records flow on without the broker",
            lambda before=before: lab.delivered()[0] > before + 5 * RATE,
            120,
        )
        recovery_seconds = time.monotonic() - ended
        print(
            f"broker {node}, which leads {STREAMS[number]}, {end.__name__}: "
            f"{5 * RATE} more records after {recovery_seconds:.1f} s"
        )
        assert recovery_seconds < FLOWS_SECONDS
        assert three.count() == len(NODES) - 1, "the broker is still down"
        three.start(node)
        until("the broker is back", lambda: three.count() == len(NODES), 120)
        until("every replica is in sync", lambda: all(three.all_in_sync(stream) for stream in STREAMS), 120)
    fed = lab.stop_feed()
    delivered_once_in_order(lab, numbered(fed))
    until(
        "the counts agree",
        lambda: lab.query("select sum(views + clicks + buys) from campaign_counts") == [(fed,)],
    )
    assert all(offsets == sorted(offsets) for offsets in origins(lab)), (
        "the first copies of each partition's records are in order"
    )
    for tier in TIERS:
        report = lab.report(tier, 1)
        assert report is not None
        assert report.state is State.RUNNING, "the same driver runs on"
