"""The content of the page `Sluice`: what it shows of each tier."""

from sluice_airflow.page.overview import overview
from sluice_ops.model import paths
from sluice_ops.model.batch import BatchGrants, BatchRequest, Grant
from sluice_ops.model.ids import TierName
from sluice_ops.model.incarnation import OwnerRecord
from sluice_ops.model.scaler import Decision, Mode, ScalerRecord
from tests.simulation.memory import MemoryChannel


def test_a_tier_has_the_number_that_the_scaler_wants_and_its_reason():
    channel = MemoryChannel()
    for name in ("counts", "entry"):
        channel.put(paths.owner(name), OwnerRecord())
    assert [tier["scaler"] for tier in overview(channel)["tiers"]] == [None, None]
    decision = Decision(mode=Mode.ADVISE, slots=2, wanted=4, reason="400 records/s need 4 workers", since=1.0)
    channel.put(paths.SCALER, ScalerRecord(decisions={TierName("counts"): decision}))
    counts, entry = overview(channel)["tiers"]
    assert counts["scaler"] == {"mode": "advise", "wanted": 4, "reason": "400 records/s need 4 workers"}
    assert entry["scaler"] is None


def test_batch_jobs_have_their_slots_or_the_reason_why_they_wait():
    channel = MemoryChannel()
    assert overview(channel)["batch"] == []
    for number, name in enumerate(("runs", "waits")):
        at = float(number)
        request = BatchRequest(tenant="reports", slots=2, by="airflow:dag/r1", at=at, renewed_at=at)
        channel.put(paths.batch_job(name), request)
    grant = Grant(slots=1, started_with=1, at=3.0)
    waiting = {"waits": "no slot is lent to batch"}
    channel.put(paths.BATCH_GRANTS, BatchGrants(grants={"runs": grant}, waiting=waiting))
    runs, waits = overview(channel)["batch"]
    assert (runs["job"], runs["state"], runs["slots"], runs["since"]) == ("runs", "running", 1, 3.0)
    assert (waits["job"], waits["state"], waits["reason"]) == ("waits", "queued", waiting["waits"])
