"""Drivers of two versions side by side, on real Spark with records flowing: upgraded by handovers,
and downgraded again.

A successor of the newer version stops a driver of the older one that has lost ZooKeeper.
"""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sluice.kafka.reader import Streams
from sluice_ops.model import paths
from sluice_ops.model.incarnation import State
from sluice_ops.model.stream_writers import VALID_SECONDS
from tests.ensemble import Link
from tests.integration.sluice.oracle import check, stored
from tests.integration.sluice.test_drivers_cut_off import address_over, link
from tests.integration.sluice.test_frozen_drivers import FENCED
from tests.integration.sluice.test_workers import feeding
from tests.lab import ROOT, Lab, until
from tests.versions import ADDED, make_next

__all__ = ["link"]
PIPELINE_MODULE = "tests.integration.sluice.hanging_pipeline"
TIERS = ("enter", "store", "tally")
STOPS_SECONDS = 40.0

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_next(tmp_path_factory.mktemp("next"))


def is_newer(lab: Lab, tier: str, number: int) -> bool:
    """Tell by its report whether a driver is of the newer version."""
    return ADDED in lab.channel.kazoo.get(paths.report(tier, number))[0].decode()


def hand_over(lab: Lab, tier: str, owner: int, host: str, **more: Any) -> None:
    lab.cut(tier, owner, owner + 1, host, **more)
    lab.wait_caught_up(tier, owner + 1)
    lab.set_owner(tier, owner + 1)
    lab.wait_for(tier, owner, State.STOPPED)
    lab.stop(tier, owner)


def flow_check(lab: Lab, streams: Streams) -> Callable[[], None]:
    """Return a function that waits until records come out of all tiers."""

    def output_counts() -> list[int]:
        tallied = lab.query("select coalesce(sum(hits), 0) from tallied")[0][0]
        return [sum(streams.bounds(["numbers"]).ends.values()), stored(lab), int(tallied)]

    def assert_flows() -> None:
        before = output_counts()
        until(
            "records flow",
            lambda: all(now > earlier for now, earlier in zip(output_counts(), before, strict=True)),
        )

    return assert_flows


def test_tiers_upgrade_and_downgrade_and_newer_drivers_fence_older_ones(
    lab: Lab, newer: Path, link: Link
) -> None:
    with closing(Streams(lab.endpoints.kafka)) as streams:
        assert_flows = flow_check(lab, streams)
        with feeding(lab) as fed:
            for tier in TIERS:
                lab.start_owner(tier, 1, "h1")
            for tier in TIERS:
                lab.wait_for(tier, 1, State.RUNNING)
            assert_flows()
            # both versions side by side in a handover, and one after the other along the stream
            for tier in TIERS:
                hand_over(lab, tier, 1, "h2", code=newer)
                assert is_newer(lab, tier, 2)
                assert_flows()
            for tier in TIERS:
                hand_over(
                    lab,
                    tier,
                    2,
                    "h3",
                    code=ROOT,
                    zookeeper=address_over(lab, link) if tier == "enter" else None,
                )
                assert not is_newer(lab, tier, 3)
                assert_flows()
            link.cut()
            lab.start_owner("enter", 4, "h1", code=newer)
            lab.wait_for("enter", 4, State.RUNNING)
            assert lab.driver("enter", 3).wait(VALID_SECONDS + STOPS_SECONDS) == FENCED, lab.log("enter", 3)[
                -3000:
            ]
            assert '"sluice-writers" names 4' in lab.log("enter", 3)
            assert_flows()
        check(lab, len(fed))
    until(
        "every number is counted",
        lambda: lab.query("select sum(hits), sum(ns) from tallied") == [(len(fed), sum(fed))],
    )
    for tier, number in (("enter", 3), ("enter", 4), ("store", 3), ("tally", 3)):
        assert "a record of the control topic cannot be read" not in lab.log(tier, number)
