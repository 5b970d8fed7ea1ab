"""A slot that runs out of memory again and again: its restarts are delayed more and more, and its
host is left.

Agent, Workers and controller are real; drivers and two more hosts are simulated.
"""

import time
from itertools import pairwise
from pathlib import Path

import pytest

from sluice_ops.agent.host.store import HostFolder, UnitRecord
from sluice_ops.model.resources import Quantum
from tests.integration.sluice_ops.agent.conftest import Lab, limited, slot, until
from tests.integration.sluice_ops.agent.test_quarantine import BAD, failing

pytestmark = [limited, pytest.mark.timeout(400), pytest.mark.long]

SMALL = 60
"""Too little memory for a JVM. Unit: MiB."""
WAITS = [1, 2, 4, 8]
"""The waits between a slot's end and its next start, from the second end on; the first restart is
immediate. Unit: seconds.
"""
FULL = f"its container was full: quantum.memory is {SMALL}m"


def test_restarts_are_delayed_more_and_more(lab: Lab) -> None:
    lab.start_agent()
    greedy = slot(memory=SMALL)
    lab.assign(greedy)
    ends: dict[int, UnitRecord] = {}

    def has_died_often() -> bool:
        record = HostFolder(lab.home, "h1").unit(greedy.id).record()
        if record is not None and record.ended_at is not None:
            ends[record.restarts] = record
        return record is not None and record.restarts > len(WAITS) and record.ended_at is not None

    until("the slot has died often", has_died_often)
    assert all(FULL in (record.exit or "") for record in ends.values()), ends
    died = [ends[number] for number in range(1, len(WAITS) + 2)]
    waits = [after.started_at - (before.ended_at or 0) for before, after in pairwise(died)]
    print(f"waits: {[round(wait, 2) for wait in waits]}")
    assert all(wait <= took < wait + 3 for wait, took in zip(WAITS, waits, strict=True)), waits
    until(
        "the slot is not given up",
        lambda: (seen := lab.unit(greedy)) and (seen.state, seen.restarts) == ("starting", len(WAITS) + 1),
    )


def test_a_host_is_left_when_several_tenants_run_out_of_memory(lab: Lab, tmp_path: Path) -> None:
    with failing(lab, tmp_path / "none", quantum=Quantum(cpu=1, memory=SMALL, threads=4)) as site:
        began = time.time()
        seen: dict[str, int] = {}

        def has_died() -> bool:
            for unit in site.workers():
                observed = site.lab.unit(unit, BAD)
                if observed is not None and FULL in (observed.exit or ""):
                    seen[unit.tenant] = max(seen.get(unit.tenant, 0), observed.restarts)
            return len(seen) > 1

        site.world.until_true(has_died, 180)
        record = site.cordoned()
        assert record.reason.startswith("units of counts, enrich died there ")
        assert record.until is not None
        assert record.until - began > 3000
        assert {len(site.world.placement(name).slots) for name in ("counts", "enrich")} == {3}
        assert {host for name in ("counts", "enrich") for host in site.world.placement(name).slots} == {
            "h2",
            "h3",
        }
        site.world.until_true(site.world.all_well, 60)
        site.world.until_true(
            lambda: (observed := site.lab.observed(BAD)) is not None and not observed.units, 60
        )
