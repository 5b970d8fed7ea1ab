"""A light tier has no workers, whatever the site file and the layers say. Its driver is placed."""

from dataclasses import replace

import pytest

from sluice_ops.model.assignment import HostState
from sluice_ops.model.change import NO_DRIFT, ChangeSpec
from sluice_ops.model.incarnation import Placement
from sluice_ops.model.release import Release, StreamShape, TierShape
from sluice_ops.model.resources import Quantum
from sluice_ops.model.scaler import Memory
from sluice_ops.model.share import Layer, LayerEntry, Layers, Numbers, PipelineShare, Share
from sluice_ops.model.spread import Spread
from sluice_ops.model.tier import Mode, tasks_at_once
from sluice_ops.model.unusable_workers import unusable_workers
from sluice_ops.planning.changes.plan import aftermath, plan
from sluice_ops.planning.check.checker import violations
from sluice_ops.planning.placement.cluster import Cluster, RefusedError, Rules, TierNow, holding
from sluice_ops.planning.placement.drift import drift
from sluice_ops.planning.placement.shares import cause, divided_share, fewest_for_threads, limits, target
from sluice_ops.planning.scaler.observe import observe
from sluice_ops.planning.shortage.fitting import fewest_slots, place_most, requests_for_minimums
from tests.unit.sluice_ops.planning.clusters import checked_plan, host_of, spec_of

T, OTHER = spec_of("t", light=True), spec_of("other")
OLD, NEW = "r1-old", "r2-new"
WISHES = Layers(
    entries=(
        LayerEntry(tenant="t", layer=Layer.PERSON, target=3, minimum=2, spare=2, owner="anna", at=0.0),
        LayerEntry(tenant="t", layer=Layer.PERSON, extra=2, extra_to="zone:ec2", owner="anna", at=0.0),
        LayerEntry(tenant="t", layer=Layer.MAINTENANCE, to="zone:annex", owner="bob", at=0.0),
    )
)
SHARES = {"t": Share(minimum=1, target=4, maximum=8, spare=1), "other": Share(minimum=1, target=2, maximum=4)}
RULES = Rules(shares=SHARES, light=frozenset({"t"}), partitions=8)


IN_DRIVER = Placement(driver="h1", slots=())


def cluster_of(spec=T, now=IN_DRIVER, rules=RULES, **tier):
    hosts = {name: host_of(name) for name in ("h1", "h2", "h3")}
    beside = Placement(driver="h2", slots=("h2", "h3"))
    tiers = {"t": TierNow(spec, now, **tier), "other": TierNow(OTHER, beside)}
    hosts = holding(holding(hosts, spec, now), OTHER, beside)
    return Cluster(hosts, tiers, (), rules)


def test_a_light_tier_has_no_slots_and_keeps_its_place():
    for layers in (Layers(), WISHES):
        rules = replace(RULES, layers=layers, locality={"t": "zone:onprem"})
        aim, bounds = target("t", rules), limits("t", rules)
        assert (aim.slots, aim.spare, aim.extra, aim.k, aim.active) == (0, 0, 0, 0, None)
        assert (bounds.minimum, bounds.target, bounds.maximum) == (0, 0, 0)
        assert aim.to == ("zone:annex" if layers is WISHES else "zone:onprem")
    assert cause(target("t", RULES)) == "its declaration as light set the number"


def test_a_light_tier_takes_nothing_of_the_pipelines_share():
    rules = replace(
        RULES,
        pipeline_share=PipelineShare(minimum=1, maximum=2),
        capacity_totals={"t": 24, "other": 24, "batch": 24},
        fewest={"t": 0, "other": 2},
    )
    assert divided_share(rules) == {"t": (0, 0), "other": (2, 0)}
    assert target("t", rules).k == 0


@pytest.mark.parametrize("mode", Mode)
def test_a_light_tier_lacks_only_a_driver_and_starts_where_it_fits(mode):
    spec = T.model_copy(update={"mode": mode, "driver": Quantum(cpu=6, memory=4096, threads=8)})
    hosts = {"h1": host_of("h1", cpu=4.0), "h2": host_of("h2")}
    cluster = Cluster(hosts, {"t": TierNow(spec)}, (), RULES)
    assert (fewest_slots(spec, RULES), fewest_for_threads(spec, RULES)) == (0, 0)
    (request,) = requests_for_minimums(cluster)
    assert (request.part, request.count) == ("driver", 1)
    placement, _ = place_most(spec, target("t", RULES), None, cluster)
    assert placement == Placement(driver="h2", slots=())
    cluster = cluster.with_state("h2", HostState.DRAINED)
    with pytest.raises(RefusedError, match="needs 6 cpu"):
        place_most(spec, target("t", RULES), None, cluster)


@pytest.mark.parametrize(
    "spec",
    [
        ChangeSpec(kind="drain", host="h1"),
        ChangeSpec(kind="reboot-hosts", hosts=("h1",)),
        ChangeSpec(kind="migrate", tier="t", to="h3"),
    ],
)
def test_the_driver_of_a_light_tier_moves_alone(spec):
    (move,) = checked_plan(spec, cluster_of()).moves
    assert (move.tier, move.after.slots, move.short, move.in_place) == ("t", (), 0, False)
    assert move.after.driver != "h1"


@pytest.mark.parametrize(
    "spec",
    [
        ChangeSpec(kind="repair"),
        ChangeSpec(kind="settle", tier="t"),
        ChangeSpec(kind="leave"),
        ChangeSpec(kind="drain", host="h3"),
        ChangeSpec(kind="shift", shift="night"),
    ],
)
@pytest.mark.parametrize("light", [True, False])
def test_nothing_gives_workers_to_a_tier_that_runs_in_its_driver(spec, light):
    """Also not to one that is light no more, before its upgrade."""
    rules = replace(
        RULES,
        light=frozenset({"t"}) if light else frozenset(),
        shifts={"night": {"t": Numbers(target=3)}},
        spread={"t": Spread(host=1)},
        pinned={"t": {"h2": 1}},
        budget={"t": 0},
    )
    spec_of_tier = T.model_copy(update={"light": light, "release": NEW})
    cluster = cluster_of(spec_of_tier, rules=rules, release=OLD)
    planned = checked_plan(spec, cluster)
    assert "t" not in {move.tier for move in planned.moves}
    assert drift(cluster.tiers["t"], target("t", rules), cluster.hosts) == []
    if spec.kind == "repair":
        assert planned.notes == (NO_DRIFT,)


def test_a_plan_that_gives_a_light_tier_a_worker_is_rejected():
    spec = ChangeSpec(kind="drain", host="h1")
    planned = plan(spec, cluster_of())
    (move,) = planned.moves
    after = move.after.model_copy(update={"slots": ("h2",)})
    mutated = planned.model_copy(update={"moves": (move.model_copy(update={"after": after}),)})
    problems = violations(mutated, spec, aftermath(spec, cluster_of()))
    assert problems == ["t would have 1 slot instead of 0"]


def release(name, *, light):
    shape = TierShape(inputs=(StreamShape(name="in"),), light=light)
    return Release(name=name, module="m", digest="d", published_at=0.0, tiers={"t": shape})


@pytest.mark.parametrize(("before", "after"), [(True, True), (True, False), (False, True), (False, False)])
def test_an_upgrade_gives_a_tier_the_workers_of_its_release(before, after):
    """The newest declaration is light; the releases are what they are."""
    now = Placement(driver="h1", slots=() if before else ("h1",) * 4)
    rules = replace(RULES, light=frozenset({"t"} if before else ()))
    cluster = cluster_of(
        T.model_copy(update={"light": before, "release": NEW}),
        now,
        rules,
        release=OLD,
        may_be_light=True,
    )
    releases = {OLD: release(OLD, light=before), NEW: release(NEW, light=after)}
    spec = ChangeSpec(kind="upgrade", tier="t", release=NEW)
    (move,) = checked_plan(spec, replace(cluster, releases=releases)).moves
    assert (len(move.after.slots), move.short) == (0 if after else 5, 0)


def test_the_threads_of_a_light_tier_are_those_of_its_driver():
    driver = Quantum(cpu=2, memory=2048, threads=3)
    spec = T.model_copy(update={"state": True, "driver": driver})
    assert (tasks_at_once(spec, 0), tasks_at_once(OTHER, 2)) == (3, 8)
    cluster = cluster_of(spec)
    refused = "ask for 48 partitions or fewer, or raise threads of the driver of t"
    with pytest.raises(RefusedError, match=refused):
        plan(ChangeSpec(kind="repartition", tier="t", partitions=49), cluster)
    (move,) = checked_plan(ChangeSpec(kind="repartition", tier="t", partitions=48), cluster).moves
    assert move.after.slots == ()


def test_the_scaler_decides_nothing_about_a_light_tier():
    sizes = {"starved": (), "busy": (), "modest": (), "changing": (), "now": 1.0}
    assert [*observe(cluster_of(), {}, Memory(), **sizes).bounds] == ["other"]
    no_more = cluster_of(T.model_copy(update={"light": False, "release": NEW}), release=OLD)
    assert [*observe(no_more, {}, Memory(), **sizes).bounds] == ["other"]


def test_each_key_of_the_site_file_that_a_light_tier_makes_useless_is_told():
    rules = replace(RULES, pinned={"t": {"h1": 1}}, budget={"other": 1})
    told = unusable_workers(rules, {"night": ["t", "other"]}, [T, OTHER])
    assert [sentence.split(" ", 1)[0] for sentence in told] == [
        "shares.t",
        "pinned.t",
        "shifts.night.shares.t",
    ]
    assert told[0] == (
        "shares.t in the site file has no effect, because the tier is light: its driver does the work; "
        "remove shares.t, or declare t without light=True, publish it, and run `sluice upgrade t`"
    )
