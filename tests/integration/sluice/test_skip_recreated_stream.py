"""`sluice skip` after a stream between tiers was deleted and recreated: the next tier continues
with the oldest record.
"""

import json
from contextlib import closing

import pytest

from sluice.api import declarations
from sluice.api.sink import Rows
from sluice.kafka.stream_identity import Identities
from sluice.sinks.batches import Batch
from sluice.sinks.ledger import GivenUpError, Ledger
from sluice.sinks.send_intents import Intent, Intents
from sluice_ops.model import paths
from sluice_ops.model.incarnation import IncarnationReport, Receipt, State
from tests.integration.sluice.stream_helpers import recreate, skip
from tests.lab import Lab

pytestmark = [pytest.mark.timeout(300), pytest.mark.long]


def test_a_table_continues_and_a_tier_with_stream_output_is_refused(lab: Lab) -> None:
    tier = declarations.load("hits").tier("outbound")
    assert tier.sink is not None
    ids, empty = Identities(lab.endpoints.kafka), Rows({name: [] for name in tier.sink.columns}, [], [])
    with closing(Ledger(lab.endpoints.postgres, "outbound", 1, tier.sink)) as ledger:
        known = ids.of(["enriched"])
        leaders = {"enriched/0": 0, "enriched/1": 4}
        ledger.write(Batch({"enriched/0": 0}, {"enriched/0": 7}, known, leaders), empty, epoch=1)
        last = ledger.last()
        assert last is not None
        assert (last.streams, last.epochs) == (known, leaders)
        lab.query(
            "insert into ledger (tier, incarnation, batch, begins, ends, rows_in, rows_out, filtered, "
            "quarantined, replays) select tier, incarnation, batch + 1, ends, ends, 0, 0, 0, 0, 0 from "
            "ledger where tier = 'outbound' returning 1"
        )
        last = ledger.last()
        assert last is not None
        assert (last.streams, last.epochs) == (known, {}), (
            "an older version, without epochs, has written the last batch"
        )
        assert json.loads(skip(lab, "outbound").stdout)["skipped"] == [], "the stream is the same"

        recreate(lab, "enriched")
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

        with closing(Intents(lab.endpoints.postgres, "outbound")) as intents:
            read = {"enriched/0": 2}, {"enriched/0": 3}
            intents.declare(Intent(1, *read, (1, 0, 0, 0, 0, 0, 1, 0), {}, now, {"enriched/0": 5}))
        with pytest.raises(GivenUpError):
            ledger.write(Batch(*read, now, {"enriched/0": 4}), empty, epoch=1)
        last = ledger.last()
        assert last is not None
        assert (last.ends, last.epochs) == (read[1], {"enriched/0": 5}), (
            "the possibly lost records were read from that leader"
        )

    receipt = Receipt(positions={"hits/0": 5}, streams=ids.of(["hits"]), at=0.0)
    lab.channel.put(
        paths.report("enrich", 1),
        IncarnationReport(state=State.STOPPED, since=0.0, pid=1, started_from=receipt),
    )
    recreate(lab, "hits")
    done = skip(lab, "enrich")
    assert done.returncode == 1
    assert "hits: the stream was deleted and recreated" in done.stderr
    assert "give the stream another name" in done.stderr
