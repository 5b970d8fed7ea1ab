"""Light tiers, whose drivers do the work, are drained, killed and upgraded while records flow: each
hit is delivered once, and counted once.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from sluice_ops.model import paths
from sluice_ops.model.incarnation import IncarnationReport, OwnerRecord
from tests.integration.sluice import light_pipeline
from tests.integration.sluice.format_checks import publish
from tests.integration.sluice.operated_lab import operated, site_of, sluice, tier_line
from tests.lab import HOSTS, Lab, until

PIPELINE_MODULE = "tests.integration.sluice.light_pipeline"
TIERS = ("entry", "enrich", "counts", "outbound")
RATE = 100

pytestmark = [pytest.mark.timeout(1800), pytest.mark.long]


@pytest.fixture(scope="module")
def site() -> str:
    return site_of("")


@pytest.fixture(scope="module")
def flowing(lab: Lab) -> Iterator[Lab]:
    with operated(lab):
        for tier in TIERS:
            sluice(lab, "start", tier)
        lab.start_feed(RATE)
        until("hits are delivered", lambda: lab.delivered()[0] > RATE)
        yield lab


def owner(lab: Lab, tier: str) -> int:
    record = lab.channel.read(paths.owner(tier), OwnerRecord)
    assert record is not None
    return record.value.owner or 0


def workers(lab: Lab, tier: str) -> Any:
    return tier_line(lab, tier)["workers"]


def goes_on(lab: Lab) -> None:
    before = lab.delivered()[0]
    until("hits are delivered again", lambda: lab.delivered()[0] > before + RATE)


def test_light_tiers_lose_nothing_and_repeat_nothing(flowing: Lab, tmp_path: Path) -> None:
    lab = flowing
    for host in HOSTS:
        change = sluice(lab, "drain", host)
        assert change["ok"], change
        assert all(tier_line(lab, tier)["driver"]["host"] != host for tier in TIERS)
        sluice(lab, "return", host)
    goes_on(lab)
    for tier in TIERS:
        before = owner(lab, tier)
        report = lab.channel.read(paths.report(tier, before), IncarnationReport)
        assert report is not None
        psutil.Process(report.value.pid).kill()
        until("the controller has started the tier again", lambda: owner(lab, tier) > before)  # noqa: B023
    goes_on(lab)

    _publish(lab, tmp_path / "with-workers", '("entry", "counts")')
    for tier in ("entry", "counts"):
        assert not workers(lab, tier), "publishing alone changes no running tier"
        change = sluice(lab, "upgrade", tier)
        assert change["ok"], change
        assert workers(lab, tier)
    goes_on(lab)
    _publish(lab, tmp_path / "light", '("none",)')
    for tier in ("entry", "counts"):
        assert workers(lab, tier), "publishing alone changes no running tier"
        change = sluice(lab, "upgrade", tier)
        assert change["ok"], change
        assert not workers(lab, tier)
    goes_on(lab)

    logs = [log.read_text() for log in lab.home.glob("**/driver-*/log")]
    assert logs
    assert not any("a task hangs" in log for log in logs)
    fed = lab.stop_feed()
    until("every hit is delivered", lambda: lab.delivered()[0] >= fed)
    assert lab.delivered() == (fed, fed)
    counted = "select coalesce(sum(views + clicks + buys), 0) from campaign_counts"
    until("every hit is counted", lambda: int(lab.query(counted)[0][0]) >= fed)
    assert int(lab.query(counted)[0][0]) == fed


def _publish(lab: Lab, folder: Path, with_workers: str) -> None:
    done = publish(lab, folder, light_pipeline, {"...] = ()": f"...] = {with_workers}"})
    assert done.returncode == 0, done.stderr
