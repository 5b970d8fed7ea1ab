"""The latency of a record through three realtime tiers while the batch of each one is replaced."""

from collections.abc import Iterator

import pytest

from tests.bench.conftest import save
from tests.bench.figures import first_of_each, milliseconds
from tests.bench.flow import PARTITIONS, Flow
from tests.bench.peers.ours import TIERS, Ours
from tests.lab import Lab, opened

pytestmark = pytest.mark.timeout(900)

RATE = 1_000
WARM_SECONDS, SECONDS = 75.0, 190.0
"""The second window has the moments two, three and four minutes after the start, at which the
batches are replaced, that of the last tier also for the second time.
"""
SLOW_MILLISECONDS = 250.0
SLOW_RECORDS = 900
"""So many of the records of 15 minutes with one replacement may be slower, so that p99.9 is not."""


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    home, pipeline = tmp_path_factory.mktemp("chain"), "tests.bench.short_batches"
    with opened(home, pipeline, partitions=len(PARTITIONS)) as lab:
        yield lab


def test_a_batch_is_replaced_before_it_ends(chain: Lab) -> None:
    chain.write_class_data()
    system = Ours(chain)
    system.start()
    with Flow(chain.endpoints.kafka, RATE, WARM_SECONDS) as flow:
        flow.wait()
    with Flow(chain.endpoints.kafka, RATE, SECONDS) as flow:
        sent = flow.wait()
    first = first_of_each(flow.arrivals)
    slow = [arrival for arrival in first if (arrival.at - arrival.due) * 1000 > SLOW_MILLISECONDS]
    runs = {tier: chain.log(tier, 1).count("the query runs") for tier in TIERS}
    save(
        "batch-ends",
        {
            "rate": RATE,
            "seconds": SECONDS,
            "runs": runs,
            "sent": sent,
            "came": len(first),
            "milliseconds": milliseconds(first),
            "slow_records": len(slow),
            "slow_seconds": sorted({int(arrival.due - first[0].due) for arrival in slow}),
        },
    )
    assert len(first) == sent
    assert min(runs.values()) > 1, "each tier has begun another run"
    assert len(slow) / (sum(runs.values()) - len(TIERS)) <= SLOW_RECORDS
