"""Records that are gone before a tier has read them: the tier stops until an operator skips them;
the audit reports the loss.
"""

import json
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from sluice.api import declarations
from sluice.audit.__main__ import Auditor
from sluice.kafka.reader import Streams
from sluice_ops.model import paths
from sluice_ops.model.incarnation import State, TierWanted
from tests.integration.sluice.stream_helpers import copied, loaded, put, skip
from tests.lab import Lab, until

PIPELINE_MODULE = "tests.integration.sluice.loading_pipeline"
PIPELINE = declarations.load(PIPELINE_MODULE)
FIRST, GONE, LAST = 100, 40, 30

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]


def delete(lab: Lab, before: int) -> None:
    """Delete the records before an offset, as retention does."""
    admin = AdminClient({"bootstrap.servers": lab.endpoints.kafka})
    for deletion in admin.delete_records([TopicPartition("raw", 0, before)]).values():
        deletion.result(30)


def skip_gone(lab: Lab, *words: str) -> list[dict[str, Any]]:
    done = skip(lab, *words)
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout)["skipped"])


def losses(lab: Lab) -> list[tuple[Any, ...]]:
    return lab.query("select tier, place, records from losses order by tier")


@pytest.mark.parametrize("tier", ["copy", "load"])
def test_records_that_are_gone_are_skipped_on_request(lab: Lab, tier: str) -> None:
    tiers = tuple(declared for declared in PIPELINE.tiers if declared.name == tier)
    with closing(Streams(lab.endpoints.kafka)) as streams, closing(Auditor(tiers, lab.endpoints)) as auditor:
        next_offset = streams.bounds(["raw"]).ends["raw/0"]

        def out() -> int:
            auditor.check()
            return loaded(lab) if tier == "load" else copied(streams)

        lab.start_owner(tier, 1, "h1")
        put(lab, next_offset, FIRST)
        until("the first records are out", lambda: out() >= FIRST)
        before = out()
        put(lab, next_offset + FIRST, 1)  # a later record proves that the records before are out
        output_count = until("one more is out", lambda: out() - before == 1) + before
        assert skip_gone(lab, tier) == [], "no record is gone"
        lab.set_owner(tier, 2)
        lab.wait_for(tier, 1, State.STOPPED)
        lab.stop(tier, 1)
        put(lab, next_offset + FIRST + 1, GONE + LAST)
        delete(lab, next_offset + FIRST + 1 + GONE)

        lab.start(tier, 2, "h2")
        report = lab.wait_for(tier, 2, State.FAILED)
        assert (
            "were never processed and are no longer there, so the tier has stopped; "
            "`sluice skip` lets the tier" in str(report.error)
        )
        lab.stop(tier, 2)
        skips = skip_gone(lab, tier, "--dry-run")
        ((_, gone),) = [skip_of_place.values() for skip_of_place in skips]
        assert GONE <= gone <= GONE + 1, "the last record may not be known to be out"
        assert skip_gone(lab, tier) == skips
        wanted = lab.channel.read(paths.wanted(tier), TierWanted)
        assert wanted is not None
        assert wanted.value.attempt == 1

        lab.set_owner(tier, 3)
        lab.start_owner(tier, 3, "h2")
        until("the remaining records are out", lambda: out() >= output_count + LAST)
        assert out() == output_count + LAST
        until("the loss is reported", lambda: auditor.check() or losses(lab))
        assert [(name, records) for name, _, records in losses(lab) if name == tier] == [(tier, gone)]
        lab.stop(tier, 3)
