"""The next incarnation of a tier with timers takes over with no result that is older than those in
the table.
"""

import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

import pytest

import nexmark
from sluice.driver.engine import batch_writer
from sluice.driver.engine.batch_engine import BatchEngine
from tests.integration.nexmark.event_feed import PORTION, EventFeed
from tests.integration.nexmark.package import write_package
from tests.integration.sluice.state_feed import ends
from tests.integration.sluice.stateful_runs import Runs, local_session, overtake
from tests.lab import Lab, opened, until

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]
SOME = 20
"""Events of a batch: a person, auctions and bids."""


@pytest.fixture
def lab(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> Iterator[Lab]:
    write_package(tmp_path, ("q4",))
    with opened(tmp_path_factory.mktemp("nexmark"), "nexmark", code=tmp_path) as opened_lab:
        yield opened_lab


@dataclass
class Gate:
    """Where the batches of an incarnation wait."""

    reached: Event = field(default_factory=Event)
    open: Event = field(default_factory=Event)


@pytest.fixture
def gates(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[int, Gate]]:
    """Let each incarnation take a batch only while its gate is open."""
    by_incarnation: dict[int, Gate] = defaultdict(Gate)
    take = BatchEngine._take

    def take_at_open_gate(engine: BatchEngine, *batch: Any) -> None:
        gate = by_incarnation[engine._config.incarnation]
        gate.reached.set()
        gate.open.wait()
        take(engine, *batch)

    monkeypatch.setattr(BatchEngine, "_take", take_at_open_gate)
    yield by_incarnation
    for gate in by_incarnation.values():
        gate.open.set()


def closed_auctions(lab: Lab) -> int:
    return int(lab.query("select coalesce(sum(auctions), 0) from q4_prices_by_category")[0][0])


def test_a_successor_that_knows_of_less_time_leaves_the_owner_its_turn(
    lab: Lab, gates: dict[int, Gate], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner has closed the auctions of the first portion. The successor's batch reads further,
    but does not know yet that these auctions have ended.
    """
    for name in ("JUST_SECONDS", "QUIET_SECONDS", "PATIENCE_SECONDS"):
        monkeypatch.setattr(batch_writer, name, 600.0)  # for the rest, it may always take over
    feed = EventFeed(lab)
    with local_session(lab) as session:
        runs = Runs(lab, session, "q4", owner=1, epoch=1, pipeline=nexmark.PIPELINE)
        gates[1].open.set()
        first = runs.start(1)
        feed.give(PORTION - SOME)
        runs.wait_level(first)
        second = runs.start(2)
        feed.give(SOME)
        runs.wait_level(first)
        assert gates[2].reached.wait(60)
        for _ in range(2):
            feed.give(SOME)
            runs.wait_level(first)
        closed, level = closed_auctions(lab), ends(lab, "q4")
        assert closed > 0

        gates[1].open.clear()
        feed.give(SOME)
        gates[2].open.set()
        until("the successor waits for its turn", lambda: second._writer._waits_since is not None)
        time.sleep(2)
        assert closed_auctions(lab) == closed
        assert ends(lab, "q4") == level
        gates[1].open.set()
        overtake(first, second, lambda: feed.give(SOME))
        assert closed_auctions(lab) >= closed
        runs.end()
