"""A person asks for other state partitions while records flow, by a controller and agents that are
real: it is done, or undone.
"""

import threading
from contextlib import ExitStack

import psutil
import pytest

from sluice_ops.model import paths
from sluice_ops.model.incarnation import IncarnationReport, OwnerRecord, Phase, State
from tests.integration.sluice.asking import operated, site_of, sluice, steps, tier_line
from tests.integration.sluice.given import Feed, assert_windows, ends, feeding
from tests.integration.sluice.runs import PIPELINE_MODULE
from tests.lab import Lab, until

__all__ = ["PIPELINE_MODULE"]
TIER, RATE = "by-window", 100
pytestmark = [pytest.mark.timeout(1500), pytest.mark.long]


@pytest.fixture(scope="module")
def site() -> str:
    return site_of(f"{TIER}: {{minimum: 1, target: 1, maximum: 2}}")


def spread(lab: Lab) -> int | None:
    line = tier_line(lab, TIER)
    return int(line["partitions"]) if line["partitions"] else None


def test_it_is_done_or_undone_and_every_record_is_counted_once(lab: Lab, feed: Feed) -> None:
    with operated(lab), ExitStack() as fed:
        fed.enter_context(feeding(feed, RATE))
        sluice(lab, "start", TIER)
        until("it counts", lambda: ends(lab, TIER))

        asked = sluice(lab, "repartition", TIER, "5")
        assert asked["ok"], asked
        assert "its state moved from 2 to 5 partitions" in steps(asked)["verify"]["sentence"]
        assert spread(lab) == 5

        # its next incarnation is killed while it takes over: the owner goes on
        killer = threading.Thread(target=_kill_the_next, args=(lab,))
        killer.start()
        asked = sluice(lab, "repartition", TIER, "3")
        killer.join()
        assert not asked["ok"], asked
        assert steps(asked)["abort"]["ok"]
        assert spread(lab) == 5

        refused = sluice(lab, "repartition", TIER, "5000")
        assert "ask for" in steps(refused)["preflight"]["sentence"]
        fed.close()
        assert_windows(lab, feed)


def _kill_the_next(lab: Lab) -> None:
    def cutting() -> int | None:
        found = lab.channel.read(paths.owner(TIER), OwnerRecord)
        return found.value.next if found is not None and found.value.phase is Phase.CUT else None

    number = until("it takes over", cutting)
    said = lab.channel.read(paths.report(TIER, number), IncarnationReport)
    assert said is not None
    assert said.value.state in {State.READY, State.RUNNING}
    psutil.Process(said.value.pid).kill()
