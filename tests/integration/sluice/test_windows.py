"""Windows that overlap, and windows of windows, on real Kafka and PostgreSQL: stopped anywhere,
their output is the one computed from the input.
"""

import time
from collections.abc import Callable

import pytest

from tests.integration.sluice.state_feed import Feed, busiest, equation, table, windows
from tests.integration.sluice.stateful_runs import PIPELINE_MODULE, Runs
from tests.integration.sluice.test_state import begin
from tests.lab import Lab, until

__all__ = ["PIPELINE_MODULE", "begin"]

pytestmark = pytest.mark.timeout(600)


def test_overlapping_and_chained_windows_survive_stops(
    lab: Lab, begin: Callable[[str, int], Runs], feed: Feed
) -> None:
    tiers = {name: begin(name, 1) for name in ("sliding", "busiest")}
    engines = {name: runs.start(1) for name, runs in tiers.items()}
    for number in range(2, 4):
        feed.hits(1000)
        time.sleep(number / 2)
        for name, runs in tiers.items():
            query = engines[name]._query
            assert query is not None
            query.stop()
            runs.set_owner(number)
            engines[name] = runs.start(number)
    hits = list(feed.records["hits"])
    for name, runs in tiers.items():
        runs.wait_level(engines[name])
        assert equation(lab, name) == feed.equation("hits")
    assert table(lab, "sliding", 2) == windows(hits, every=5)

    def all_are_final() -> bool:
        """Time goes on with each later record, in every partition."""
        later = len(feed.records["hits"]) - len(hits)
        rows = [
            {"id": 10**9 + later + number, "who": "later", "at": hits[-1]["at"] + 600_000 + later * 100}
            for number in range(4)
        ]
        feed.put("hits", rows)
        return bool(table(lab, "busiest", 1) == busiest(hits))

    until("the windows of all hits are final", all_are_final, 60)
    for engine in engines.values():
        engine.hold()
