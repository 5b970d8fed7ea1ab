"""An operator repartitions a tier's state while records flow, with a real controller and agents:
the change is done, or undone.
"""

import threading
from contextlib import ExitStack

import psutil
import pytest

from sluice_ops.model import paths
from sluice_ops.model.incarnation import IncarnationReport, OwnerRecord, Phase, State
from tests.integration.sluice.operated_lab import operated, site_of, sluice, steps, tier_line
from tests.integration.sluice.state_feed import Feed, assert_windows, ends, feeding
from tests.integration.sluice.stateful_runs import PIPELINE_MODULE
from tests.lab import Lab, until

__all__ = ["PIPELINE_MODULE"]
TIER, RATE = "by-window", 100
pytestmark = [pytest.mark.timeout(1500), pytest.mark.long]


@pytest.fixture(scope="module")
def site() -> str:
    return site_of(f"{TIER}: {{minimum: 1, target: 1, maximum: 2}}")


def partitions_of_state(lab: Lab) -> int | None:
    line = tier_line(lab, TIER)
    return int(line["partitions"]) if line["partitions"] else None


def test_a_repartition_is_done_or_undone_and_counts_each_record_once(lab: Lab, feed: Feed) -> None:
    with operated(lab), ExitStack() as feeds:
        feeds.enter_context(feeding(feed, RATE))
        sluice(lab, "start", TIER)
        until("the tier counts", lambda: ends(lab, TIER))

        change = sluice(lab, "repartition", TIER, "5")
        assert change["ok"], change
        assert "its state moved from 2 to 5 partitions" in steps(change)["verify"]["sentence"]
        assert partitions_of_state(lab) == 5

        # The next incarnation is killed during the cut: the owner continues.
        killer = threading.Thread(target=_kill_next_incarnation, args=(lab,))
        killer.start()
        change = sluice(lab, "repartition", TIER, "3")
        killer.join()
        assert not change["ok"], change
        assert steps(change)["abort"]["ok"]
        assert partitions_of_state(lab) == 5

        refused = sluice(lab, "repartition", TIER, "1000")
        assert "ask for" in steps(refused)["preflight"]["sentence"]
        feeds.close()
        assert_windows(lab, feed)


def _kill_next_incarnation(lab: Lab) -> None:
    def next_incarnation() -> int | None:
        owner = lab.channel.read(paths.owner(TIER), OwnerRecord)
        return owner.value.next if owner is not None and owner.value.phase is Phase.CUT else None

    number = until("the next incarnation takes over", next_incarnation)
    report = lab.channel.read(paths.report(TIER, number), IncarnationReport)
    assert report is not None
    assert report.value.state in {State.READY, State.RUNNING}
    psutil.Process(report.value.pid).kill()
