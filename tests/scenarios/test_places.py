"""Where workers run: a changed rule takes effect without a person, and one worker moves alone."""

from collections import Counter
from typing import Any

import pytest

from tests.scenarios.live import Live, until
from tests.scenarios.oracle import Load

pytestmark = [pytest.mark.endurance, pytest.mark.timeout(1800)]

RATE = 100
REPAIR = {"after": 30}
REPAIR_SECONDS = 300


def hosts_of_workers(live: Live, tier: str) -> Counter[str]:
    return Counter(worker["host"] for worker in live.tiers()[tier]["workers"])


def workers(live: Live, tier: str) -> list[dict[str, Any]]:
    return [slot for slot in live.sluice_json("slots") if slot["tenant"] == tier]


def test_a_changed_locality_takes_effect_without_a_person(live: Live) -> None:
    place = next(name for name in live.hosts() if name not in live.hosts_of("outbound"))
    with Load(live, RATE) as load, live.site(locality={"outbound": place}, repair=REPAIR):
        until(
            f"outbound runs on {place} alone",
            REPAIR_SECONDS,
            lambda: live.hosts_of("outbound") == {place} and live.all_running(),
            every=1.0,
        )
    load.check()


def test_one_worker_moves_to_a_named_host_and_the_others_stay(live: Live) -> None:
    before = hosts_of_workers(live, "enrich")
    place = next(name for name in live.hosts() if name not in before)
    moved = workers(live, "enrich")[0]
    with Load(live, RATE) as load:
        live.sluice("migrate", "enrich", place, "--worker", moved["id"], seconds=600)
        assert hosts_of_workers(live, "enrich") == before - Counter([moved["host"]]) + Counter([place])
    load.check()
