"""A drained burst host is emptied also if its workers find no room on other burst hosts."""

import pytest

from sluice_ops.model.change import ChangeSpec
from sluice_ops.model.incarnation import Placement
from sluice_ops.model.share import Layer, LayerEntry, Layers, Share
from sluice_ops.planning.changes.plan import aftermath, plan
from sluice_ops.planning.check.checker import violations
from sluice_ops.planning.placement.cluster import Cluster, Rules, TierNow, holding
from tests.unit.sluice_ops.planning.clusters import host_of, spec_of

T = spec_of("t")
DRAIN = ChangeSpec(kind="drain", host="e2")


def cluster_of(*slots, e1):
    """Return a cluster with a tier of one worker of its own, and a burst; e1 holds `e1` workers."""
    hosts = {
        "h1": host_of("h1"),
        "e1": host_of("e1", zone="ec2", cpu=e1),
        "e2": host_of("e2", zone="ec2", cpu=2),
    }
    burst = LayerEntry(
        tenant="t", layer=Layer.PERSON, extra=len(slots) - 1, extra_to="zone:ec2", owner="anna", at=0.0
    )
    now = Placement(driver="h1", slots=slots)
    rules = Rules(
        shares={"t": Share(minimum=1, target=1, maximum=8)}, layers=Layers(entries=(burst,)), partitions=8
    )
    return Cluster(holding(hosts, T, now), {"t": TierNow(T, now)}, (), rules)


@pytest.mark.parametrize(
    ("e1", "after", "missing"),
    [(6, ("h1", "e1", "e1", "e1"), 0), (3, ("h1", "e1", "e1"), 1), (1, ("h1",), 3)],
)
def test_a_drain_keeps_the_burst_workers_for_which_there_is_room(e1, after, missing):
    cluster = cluster_of("h1", "e1", "e2", "e2", e1=e1)
    planned = plan(DRAIN, cluster)
    assert violations(planned, DRAIN, aftermath(DRAIN, cluster)) == []
    (move,) = planned.moves
    assert (move.after.slots, move.burst_short, move.short) == (after, missing, 0)
    assert any(f"{missing} fewer than its burst" in note for note in planned.notes) is bool(missing)


def test_the_checker_refuses_a_plan_that_drops_burst_workers_silently():
    cluster = cluster_of("h1", "e1", "e2", "e2", e1=3)
    planned = plan(DRAIN, cluster)
    (move,) = planned.moves
    silent = planned.model_copy(update={"moves": (move.model_copy(update={"burst_short": 0}),)})
    assert violations(silent, DRAIN, aftermath(DRAIN, cluster))[0] == "t would have 3 slots instead of 4"
    scale = ChangeSpec(kind="scale", tier="t", k=2)
    unforced = violations(planned, scale, aftermath(scale, cluster))
    assert "t would lack 1 slot of its burst, but it could stay as it is" in unforced
