"""Sluice's chain and the same chain on other systems, one at a time in turns, each on a new broker
with the same settings.

`-k flink`, `-k latency` and so on choose. Results are saved separately; `python -m
tests.bench.peers.report` compares them.
"""

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Message

from tests.bench.conftest import save
from tests.bench.figures import disturbance, first_of_each, highest_sustained, milliseconds
from tests.bench.flow import CHAIN, LATE_SECONDS, PARTITIONS, Flow
from tests.bench.offers import offer
from tests.bench.peers.flink import Flink, passing
from tests.bench.peers.ours import Ours
from tests.bench.peers.storm import Storm
from tests.bench.peers.system import Deed, System, processor_seconds
from tests.bench.short.outputs import StreamOutput
from tests.lab import Lab, opened, until

pytestmark = pytest.mark.timeout(1800)

ROUNDS = int(os.environ.get("SLUICE_BENCH_ROUNDS", "2"))
WINDOW = float(os.environ.get("SLUICE_BENCH_WINDOW", "30"))
"""The length of each rate's window. Unit: seconds."""
WARM_SECONDS = 60.0
WARM_RATE = 2_000
RATES = (250, 1_000, 5_000)
MOVE_RATE = 1_000
SETTLE_SECONDS = 5.0
"""Load before and after a move or a kill. Unit: seconds."""
FIRST_RATE = 5_000
RUNG_SECONDS = 10.0


def ours(lab: Lab, _folder: Path) -> System:
    lab.write_class_data()
    return Ours(lab)


def flink(lab: Lab, folder: Path) -> System:
    return Flink(folder, passing(lab.endpoints.kafka))


def storm(lab: Lab, folder: Path) -> System:
    return Storm(folder, lab.endpoints.kafka, lab.endpoints.zookeeper)


MAKERS = {"sluice": ours, "flink": flink, "storm": storm}


@dataclass
class Bench:
    """A running system, and its broker."""

    name: str
    turn: int
    system: System
    kafka: str

    def save(self, question: str, results: dict[str, object]) -> None:
        save(f"peers-{question}-{self.name}-{self.turn}", {"system": self.name, "turn": self.turn, **results})

    def flow(
        self, rate: int, seconds: float = 3600.0, new: Callable[[Message], bool] = lambda _: True
    ) -> Flow:
        return Flow(self.kafka, rate, seconds, new)


@pytest.fixture(scope="module", params=[f"{name}-{turn}" for turn in range(1, ROUNDS + 1) for name in MAKERS])
def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    name, turn = request.param.rsplit("-", 1)
    with opened(tmp_path_factory.mktemp("lab"), "tests.bench.chain", partitions=len(PARTITIONS)) as lab:
        system = MAKERS[name](lab, tmp_path_factory.mktemp(name))
        try:
            system.start()
            running_bench = Bench(name, int(turn), system, lab.endpoints.kafka)
            with running_bench.flow(WARM_RATE, WARM_SECONDS) as flow:
                sent = flow.wait()
            assert len(first_of_each(flow.arrivals)) == sent
            yield running_bench
        finally:
            system.stop()


def test_latency(bench: Bench) -> None:
    results = {}
    for rate in RATES:
        before, started = processor_seconds(bench.system), time.monotonic()
        with bench.flow(rate, WINDOW) as flow:
            sent = flow.wait()
        spent, seconds = processor_seconds(bench.system) - before, time.monotonic() - started
        first = first_of_each(flow.arrivals)
        results[rate] = {
            "sent": sent,
            "came": len(first),
            "milliseconds": milliseconds(first),
            "processor_seconds_per_million": round(spent / sent * 1e6),
            "processors": round(spent / seconds, 2),
        }
        assert len(first) == sent
    bench.save("latency", {"window_seconds": WINDOW, "rates": results})


def test_highest_rate(bench: Bench) -> None:
    rungs: list[dict[str, float]] = []

    def sustains(rate: int) -> bool:
        rungs.append(measured(bench, rate))
        return bool(rungs[-1]["sustained"])

    highest = highest_sustained(sustains, FIRST_RATE)
    bench.save("rate", {"highest": highest, "rung_seconds": RUNG_SECONDS, "rungs": rungs})
    assert highest


def measured(bench: Bench, rate: int) -> dict[str, float]:
    """Offer a rate for a while; return the figures after all records are out."""
    output = StreamOutput(bench.kafka, "three")
    out, spent = output.count(), processor_seconds(bench.system)
    result = offer(bench.kafka, CHAIN, rate, RUNG_SECONDS, output)
    spent = processor_seconds(bench.system) - spent
    until("the remaining records are out", lambda: output.count() - out >= result.expected, 300)
    return result.figures(spent)


def deeds_done(bench: Bench, deeds: "dict[str, Deed]") -> dict[str, object]:
    results: dict[str, object] = {}
    for name, deed in deeds.items():
        with bench.flow(MOVE_RATE, new=bench.system.reader()) as flow:
            time.sleep(SETTLE_SECONDS)
            requested_at = time.time()
            effective_at = deed()
            bench.system.ready()
            time.sleep(LATE_SECONDS * 2)  # a kill shows in records that were due since then
            until(f"after {name}, records are in time again", flow.has_no_lag)
            done = time.time() - LATE_SECONDS
            time.sleep(SETTLE_SECONDS)
            end = time.time()
            sent = flow.end()
        results[name] = {
            "took_seconds": round(done - requested_at, 2),
            **disturbance(flow.arrivals, sent, effective_at, end),
            "gap_seconds_with_preparation": disturbance(flow.arrivals, sent, requested_at, end)[
                "gap_seconds"
            ],
        }
    return results


def test_planned_moves(bench: Bench) -> None:
    results = deeds_done(bench, dict(bench.system.moves()))
    bench.save("moves", {"rate": MOVE_RATE, "deeds": results})
    assert {name: result for name, result in results.items() if result["lost"]} == {}


def test_kills(bench: Bench) -> None:
    results = deeds_done(bench, dict(bench.system.kills()))
    bench.save("kills", {"rate": MOVE_RATE, "deeds": results})
    assert {name: result for name, result in results.items() if result["lost"]} == {}
