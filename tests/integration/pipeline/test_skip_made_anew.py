"""`sluice skip` where a stream between tiers was deleted and made anew: the tier behind it goes on with the oldest that there are."""

import json
import subprocess
import sys
from contextlib import closing

import pytest

from ops.model import paths
from ops.model.incarnation import IncarnationReport, Receipt, State
from pipeline import declare
from pipeline.driver.identity import Identities
from pipeline.sinks.batches import Batch
from pipeline.sinks.ledger import Ledger
from pipeline.sinks.sink import Rows
from tests.integration.pipeline.topics import make_anew
from tests.lab import ROOT, Lab

pytestmark = [pytest.mark.timeout(300), pytest.mark.long]


def skip(lab: Lab, tier: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pipeline.skip", tier, "--json"]
    return subprocess.run(command, env=lab.env, cwd=ROOT, check=False, capture_output=True, text=True, timeout=60)


def test_a_table_goes_on_and_who_keeps_its_place_in_its_output_is_refused(lab: Lab) -> None:
    tier = declare.load("pipeline.hits").tier("outbound")
    assert tier.sink is not None
    ids, empty = Identities(lab.where.kafka), Rows({name: [] for name in tier.sink.columns}, [], [])
    with closing(Ledger(lab.where.postgres, "outbound", 1, tier.sink)) as ledger:
        known = ids.of(["enriched"])
        ledger.write(Batch({"enriched/0": 0}, {"enriched/0": 7}, known), empty, epoch=1)
        last = ledger.last()
        assert last is not None
        assert last.streams == known
        assert json.loads(skip(lab, "outbound").stdout)["skipped"] == [], "it is the same stream"

        make_anew(lab, "enriched")
        done = skip(lab, "outbound")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["skipped"] == [{"place": "enriched/0:7", "records": 0}]
        last = ledger.last()
        assert last is not None
        assert last.ends == {}
        now = ids.of(["enriched"])
        ledger.write(Batch({"enriched/0": 0}, {"enriched/0": 2}, now), empty, epoch=1)
        last = ledger.last()
        assert last is not None
        assert last.streams == now != known

    receipt = Receipt(positions={"hits/0": 5}, streams=ids.of(["hits"]), at=0.0)
    lab.channel.put(paths.report("enrich", 1), IncarnationReport(state=State.STOPPED, since=0.0, pid=1, started_from=receipt))
    make_anew(lab, "hits")
    done = skip(lab, "enrich")
    assert done.returncode == 1
    assert "hits: the stream was deleted and made anew; give the stream another name" in done.stderr
