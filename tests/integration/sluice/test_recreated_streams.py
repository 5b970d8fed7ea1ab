"""A stream that is deleted and recreated, and then has more records than were read before: no
record is skipped silently.
"""

import time
from contextlib import closing

import pytest

from sluice.api import declarations
from sluice.audit.__main__ import Auditor
from sluice.kafka.reader import Streams
from sluice_ops.model.incarnation import State
from tests.integration.sluice.stream_helpers import copied, loaded, put, recreate
from tests.lab import Lab, until

PIPELINE_MODULE = "tests.integration.sluice.loading_pipeline"
PIPELINE = declarations.load(PIPELINE_MODULE)
BEFORE, AFTER = 100, 150

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]


def test_a_recreated_stream_stops_its_readers(lab: Lab) -> None:
    with (
        closing(Streams(lab.endpoints.kafka)) as streams,
        closing(Auditor(PIPELINE.tiers, lab.endpoints)) as auditor,
    ):
        lab.start_owner("copy", 1, "h1")
        lab.start_owner("load", 1, "h2")
        put(lab, 0, BEFORE)
        until("every record is out", lambda: (loaded(lab), copied(streams)) == (BEFORE, BEFORE))
        assert auditor.check() == []
        for tier in ("copy", "load"):
            lab.set_owner(tier, 1, paused=True)
            report = lab.wait_for(tier, 1, State.PAUSED)
            assert report.stopped_at is not None
            assert set(report.stopped_at.streams) == {"raw"}
        recreate(lab, "raw")
        put(lab, BEFORE, AFTER)
        for tier in ("copy", "load"):
            lab.set_owner(tier, 1)
            assert "raw: the stream was deleted and recreated" in str(
                lab.wait_for(tier, 1, State.FAILED).error
            )
            lab.stop(tier, 1)
        assert (loaded(lab), copied(streams)) == (BEFORE, BEFORE), "no record was read from the old offsets"
        sentences = {missing.sentence for missing in auditor.check()}
        assert len(sentences) == 2, sentences
        assert all("raw was deleted and recreated" in sentence for sentence in sentences), sentences

        # The remedy that the error names; then the stream is recreated while the tier runs.
        lab.query("update ledger set ends = '{}' where tier = 'load' returning 1")
        lab.query("delete from loaded returning 1")
        lab.query("delete from marks where tier = 'load' returning 1")
        lab.start_owner("load", 2, "h2")
        until("every record of the new stream is delivered", lambda: loaded(lab) == AFTER)
        recreate(lab, "raw")
        put(lab, 1000, 2 * AFTER)
        error = str(lab.wait_for("load", 2, State.FAILED).error)
        assert "recreated" in error or "is not in Kafka" in error, error
        time.sleep(1)
        assert loaded(lab) == AFTER, "no record of the third stream was written"
