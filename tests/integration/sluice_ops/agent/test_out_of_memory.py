"""A slot that goes out of memory again and again, in a control group of its own: it is started ever later, and its host is left.

The agent, the Workers and the controller are real; drivers and two more hosts are simulated.
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
"""In so much no JVM starts. Unit: MiB."""
WAITS = [1, 2, 4, 8]
"""Between the end of a slot and its next start, from its second end on; the first time it is started at once. Unit: seconds."""
FULL = f"its container was full: quantum.memory is {SMALL}m"


def test_it_is_started_ever_later(lab: Lab) -> None:
    lab.agent()
    greedy = slot(memory=SMALL)
    lab.assign(greedy)
    ends: dict[int, UnitRecord] = {}

    def has_died_often() -> bool:
        record = HostFolder(lab.home, "h1").unit(greedy.id).record()
        if record is not None and record.ended_at is not None:
            ends[record.restarts] = record
        return record is not None and record.restarts > len(WAITS) and record.ended_at is not None

    until("it has died often", has_died_often)
    assert all(FULL in (record.exit or "") for record in ends.values()), ends
    died = [ends[number] for number in range(1, len(WAITS) + 2)]
    waits = [after.started_at - (before.ended_at or 0) for before, after in pairwise(died)]
    print(f"waits: {[round(wait, 2) for wait in waits]}")
    assert all(wait <= took < wait + 3 for wait, took in zip(WAITS, waits, strict=True)), waits
    until(
        "it is not given up",
        lambda: (seen := lab.unit(greedy)) and (seen.state, seen.restarts) == ("starting", len(WAITS) + 1),
    )


def test_where_it_happens_to_several_tenants_their_host_is_left(lab: Lab, tmp_path: Path) -> None:
    with failing(lab, tmp_path, tmp_path / "none", quantum=Quantum(cpu=1, memory=SMALL, threads=4)) as site:
        began = time.time()
        seen: dict[str, int] = {}

        def has_died() -> bool:
            for unit in site.workers():
                there = site.lab.unit(unit, BAD)
                if there is not None and FULL in (there.exit or ""):
                    seen[unit.tenant] = max(seen.get(unit.tenant, 0), there.restarts)
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
        site.world.until_true(lambda: (said := site.lab.observed(BAD)) is not None and not said.units, 60)
