"""The latency of a record through three realtime tiers, from its due time in `raw` to a consumer of
the last stream.
"""

import os
from collections.abc import Iterator

import pytest

from tests.bench.conftest import save
from tests.bench.figures import first_of_each, milliseconds
from tests.bench.flow import PARTITIONS, Flow
from tests.bench.peers.ours import Ours
from tests.bench.peers.system import processor_seconds
from tests.lab import Lab, opened

pytestmark = pytest.mark.timeout(3600)

RATE = 1_000
SECONDS = float(os.environ.get("SLUICE_BENCH_SECONDS", "900"))
LIMITS = {"p50": 2.5, "p99": 25.0, "p99.9": 250.0}
"""Unit: milliseconds."""


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with opened(tmp_path_factory.mktemp("chain"), "tests.bench.chain", partitions=len(PARTITIONS)) as lab:
        yield lab


def test_three_realtime_tiers(chain: Lab) -> None:
    chain.write_class_data()
    system = Ours(chain)
    system.start()
    with Flow(chain.endpoints.kafka, RATE, 90) as flow:
        flow.wait()  # until the JVMs have compiled their code
    before = processor_seconds(system)
    with Flow(chain.endpoints.kafka, RATE, SECONDS) as flow:
        sent = flow.wait()
    processor = processor_seconds(system) - before
    first = first_of_each(flow.arrivals)
    latency = milliseconds(first)
    save(
        "latency",
        {
            "rate": RATE,
            "seconds": SECONDS,
            "sent": sent,
            "came": len(first),
            "milliseconds": latency,
            "processor_seconds_per_million": round(processor / len(first) * 1e6),
        },
    )
    assert len(first) == sent
    assert {name: latency[name] for name in LIMITS if latency[name] > LIMITS[name]} == {}
