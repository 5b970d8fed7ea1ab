"""Records that are gone before a tier has read them: it stands still until a person has it go on without, and that is told as a loss."""

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
from tests.integration.sluice.topics import copied, loaded, put, skip
from tests.lab import Lab, until

PIPELINE_MODULE = "tests.integration.sluice.loading"
PIPELINE = declarations.load(PIPELINE_MODULE)
FIRST, GONE, LAST = 100, 40, 30

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]


def delete(lab: Lab, before: int) -> None:
    """Take records away as retention does."""
    admin = AdminClient({"bootstrap.servers": lab.endpoints.kafka})
    for done in admin.delete_records([TopicPartition("raw", 0, before)]).values():
        done.result(30)


def skipped(lab: Lab, *words: str) -> list[dict[str, Any]]:
    done = skip(lab, *words)
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout)["skipped"])


def losses(lab: Lab) -> list[tuple[Any, ...]]:
    return lab.query("select tier, place, records from losses order by tier")


@pytest.mark.parametrize("tier", ["copy", "load"])
def test_what_is_gone_is_skipped_when_a_person_says_so(lab: Lab, tier: str) -> None:
    tiers = tuple(each for each in PIPELINE.tiers if each.name == tier)
    with closing(Streams(lab.endpoints.kafka)) as streams, closing(Auditor(tiers, lab.endpoints)) as auditor:
        at = streams.bounds(["raw"]).ends["raw/0"]

        def out() -> int:
            auditor.look()
            return loaded(lab) if tier == "load" else copied(streams)

        lab.start_owner(tier, 1, "h1")
        put(lab, at, FIRST)
        until("the first are out", lambda: out() >= FIRST)
        before = out()
        put(lab, at + FIRST, 1)  # by this one it is known that those before it are out
        there = until("one more is out", lambda: out() - before == 1) + before
        assert skipped(lab, tier) == [], "nothing is gone"
        lab.set_owner(tier, 2)
        lab.wait_for(tier, 1, State.STOPPED)
        lab.stop(tier, 1)
        put(lab, at + FIRST + 1, GONE + LAST)
        delete(lab, at + FIRST + 1 + GONE)

        lab.start(tier, 2, "h2")
        report = lab.wait_for(tier, 2, State.FAILED)
        assert (
            "were never processed and are no longer there, so the tier has stopped; `sluice skip` lets the tier"
            in str(report.error)
        )
        lab.stop(tier, 2)
        found = skipped(lab, tier, "--dry-run")
        ((_, gone),) = [each.values() for each in found]
        assert GONE <= gone <= GONE + 1, "of the last one it may not be known that it is out"
        assert skipped(lab, tier) == found
        wanted = lab.channel.read(paths.wanted(tier), TierWanted)
        assert wanted is not None
        assert wanted.value.attempt == 1

        lab.set_owner(tier, 3)
        lab.start_owner(tier, 3, "h2")
        until("what was there comes out", lambda: out() >= there + LAST)
        assert out() == there + LAST
        until("the loss is told", lambda: auditor.look() or losses(lab))
        assert [(name, records) for name, _, records in losses(lab) if name == tier] == [(tier, gone)]
        lab.stop(tier, 3)
