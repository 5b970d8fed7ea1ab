"""Partitions are added to a tier's inputs and outputs during its handover, by a real controller and
real agents.
"""

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from sluice.kafka.reader import Streams
from sluice_ops.model import paths
from sluice_ops.model.incarnation import OwnerRecord, Phase
from tests.integration.sluice.operated_lab import operated, site_of, sluice, tier_line
from tests.integration.sluice.oracle import check, followed, stored
from tests.integration.sluice.test_workers import KNOWN_SECONDS, feeding
from tests.lab import HOSTS, Lab, until

PIPELINE_MODULE = "tests.integration.sluice.hanging_pipeline"
TIERS = ("enter", "store")
USED_SECONDS = 240.0
"""The time until a tier uses new partitions of its output: it looks once a minute, after a minute
as the only incarnation.
"""

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]


@pytest.fixture(scope="module")
def site() -> str:
    """Give the realtime tier eight threads, one for each partition, and each host enough room."""
    site_lines = site_of(
        "enter: {minimum: 2, target: 2, maximum: 3}, store: {minimum: 1, target: 1, maximum: 1}"
    )
    return site_lines.replace("cpu: 4, memory: 4g", "cpu: 8, memory: 12g")


@pytest.fixture(scope="module")
def running(lab: Lab) -> Iterator[Lab]:
    with operated(lab):
        for tier in TIERS:
            sluice(lab, "start", tier)
        for tier in TIERS:
            until(f"{tier} runs", lambda tier=tier: tier_line(lab, tier)["state"] == "running")
        yield lab


def counts(lab: Lab) -> dict[str, int]:
    """Return the current number of partitions of each stream."""
    with closing(Streams(lab.endpoints.kafka)) as streams:
        return {stream: streams.partitions(stream) for stream in ("raw", "numbers")}


def add(lab: Lab, **partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": lab.endpoints.kafka})
    for created in admin.create_partitions(
        [NewPartitions(stream, count) for stream, count in partitions.items()]
    ).values():
        created.result()


def move(lab: Lab, tier: str, phase: Phase, act: Callable[[], None]) -> Any:
    """Migrate a tier, call `act` in the given phase of its handover, and return the change's
    result.
    """
    line = tier_line(lab, tier)
    current_hosts = {line["driver"]["host"], *(worker["host"] for worker in line["workers"])}
    target = next(host for host in HOSTS if host not in current_hosts)

    def in_phase() -> bool:
        assert not change.done(), change.result()
        record = lab.channel.read(paths.owner(tier), OwnerRecord)
        return record is not None and record.value.next is not None and record.value.phase is phase

    with ThreadPoolExecutor(1) as pool:
        change = pool.submit(sluice, lab, "migrate", tier, target)
        until(f"the handover of {tier} is in {phase}", in_phase)
        act()
        done = change.result()
    until(f"{tier} runs", lambda: tier_line(lab, tier)["state"] == "running")
    assert (tier_line(lab, tier)["driver"]["host"] == target) is done["ok"], done
    return done


@contextmanager
def under_load(lab: Lab) -> Iterator[Callable[..., None]]:
    """Write records to all partitions; yield a function that adds partitions.

    Check the output at the end.
    """
    first, partitions = stored(lab), [counts(lab)["raw"]]

    def add_partitions(**streams: int) -> None:
        add(lab, **streams)
        time.sleep(KNOWN_SECONDS)
        partitions[0] = streams.get("raw", partitions[0])

    with followed(lab, *TIERS):
        with feeding(lab, first=first, partitions=lambda: partitions[0]) as numbers:
            until("records come out", lambda: stored(lab) > first)
            yield add_partitions
        check(lab, first + len(numbers), partitions_added=True)


def test_the_handover_succeeds_and_each_record_takes_one_path(running: Lab) -> None:
    lab = running
    with under_load(lab) as add_partitions:
        assert move(lab, "enter", Phase.PREPARE, lambda: add_partitions(raw=6, numbers=5))["ok"]
        assert move(lab, "enter", Phase.CUT, lambda: add_partitions(raw=8, numbers=6))["ok"]
        assert move(lab, "store", Phase.PREPARE, lambda: add_partitions(numbers=7))["ok"]

        def all_used() -> bool:
            with closing(Streams(lab.endpoints.kafka)) as streams:
                ends = streams.bounds(["numbers"]).ends
            return len(ends) == 7 and all(ends.values())

        until("all partitions of the output get records", all_used, USED_SECONDS)


def test_a_handover_without_threads_for_new_partitions_is_undone(
    running: Lab,
) -> None:
    lab = running
    with under_load(lab) as add_partitions:
        owner = tier_line(lab, "enter")["incarnation"]
        done = move(lab, "enter", Phase.PREPARE, lambda: add_partitions(raw=10))
        assert not done["ok"]
        assert "sluice scale enter 3" in json.dumps(done), json.dumps(done)
        assert tier_line(lab, "enter")["incarnation"] == owner
        before = stored(lab)
        until("records flow on", lambda: stored(lab) > before)
        until(
            "the tier reports the partitions that it does not read",
            lambda: "sluice scale enter 3" in (tier_line(lab, "enter")["unread"] or ""),
        )
        scaled = sluice(lab, "scale", "enter", "3")
        assert scaled["ok"], json.dumps(scaled)
