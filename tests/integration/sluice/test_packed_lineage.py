"""Records with the lineage in one header and records with five headers, in the same streams: tiers
change from one form to the other and back in handovers, on real Spark with records flowing.
"""

import re
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from sluice.api.lineage_header import HEADER, WORDS
from sluice.kafka.reader import Streams, topic_and_number
from sluice_ops.model.incarnation import State
from tests.integration.sluice.oracle import check
from tests.integration.sluice.test_driver_versions import PIPELINE_MODULE, TIERS, flow_check, hand_over
from tests.integration.sluice.test_workers import feeding
from tests.lab import Lab, until

__all__ = ["PIPELINE_MODULE"]

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]


def write_form(lab: Lab, *, packed: bool) -> None:
    """Change the site file, which drivers read at their start."""
    site = Path(lab.env["SLUICE_SITE"])
    text, changes = re.subn(
        r"(?m)^packed_lineage: \w+$", f"packed_lineage: {str(packed).lower()}", site.read_text()
    )
    assert changes == 1
    site.write_text(text)


def forms(lab: Lab, stream: str) -> list[str]:
    """Return the changes of form along a stream's first partition."""
    with closing(Streams(lab.endpoints.kafka)) as streams:
        place, end = next(iter(streams.bounds([stream]).ends.items()))
    found: list[str] = []
    consumer = Consumer({"bootstrap.servers": lab.endpoints.kafka, "group.id": "forms"})
    consumer.assign([TopicPartition(*topic_and_number(place), 0)])
    offset = 0
    while offset < end:
        for message in consumer.consume(500, timeout=5):
            offset = (message.offset() or 0) + 1
            names = {name for name, _ in message.headers() or ()}
            assert (HEADER in names) != (set(WORDS) <= names), names
            form = "one" if HEADER in names else "five"
            if found[-1:] != [form]:
                found.append(form)
    consumer.close()
    return found


def test_both_forms_stand_beside_each_other(lab: Lab) -> None:
    with closing(Streams(lab.endpoints.kafka)) as streams:
        assert_flows = flow_check(lab, streams)
        with feeding(lab) as fed:
            write_form(lab, packed=False)
            for tier in TIERS:
                lab.start_owner(tier, 1, "h1")
            for tier in TIERS:
                lab.wait_for(tier, 1, State.RUNNING)
            assert_flows()
            for number, packed in ((1, True), (2, False)):
                write_form(lab, packed=packed)
                for tier in TIERS:
                    hand_over(lab, tier, number, f"h{number + 1}")
                    assert_flows()
        check(lab, len(fed))
    until(
        "every number is counted",
        lambda: lab.query("select sum(hits), sum(ns) from tallied") == [(len(fed), sum(fed))],
    )
    changes = forms(lab, "numbers")
    assert (changes[0], changes[-1]) == ("five", "five")
    assert "one" in changes
