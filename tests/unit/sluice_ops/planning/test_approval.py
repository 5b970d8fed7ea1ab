"""The site's rule for approval: which planned changes wait for a second person."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from simulation.world import settled

from sluice_ops.controller.pass_state import Draft, PassInputs
from sluice_ops.controller.policies.capacity import cluster_of_draft
from sluice_ops.model.approval import OFFERED, PAUSE_ALL, ApprovalRule, person_of
from sluice_ops.model.change import ChangeSpec
from sluice_ops.model.launch import Launch
from sluice_ops.planning.approval import Facts, beyond, facts_of, reasons, too_expensive
from sluice_ops.planning.changes.kinds import KINDS
from sluice_ops.planning.changes.plan import plan
from sluice_ops.site.approval_config import ApprovalConfig
from sluice_ops.site.repair_config import WindowConfig
from sluice_ops.site.site_file import Site
from sluice_ops.snapshot.view import read_view

NAMES = st.lists(st.sampled_from(["a", "b", "c", "d"]), unique=True).map(tuple)
MONEY = st.floats(0, 100)
LAUNCH = st.builds(
    Launch,
    instances=st.integers(0, 3),
    could_cost=st.none() | MONEY,
    spent=MONEY,
    running_could_cost=MONEY,
    budget=st.none() | st.floats(0.1, 100),
)
FACTS = st.builds(
    Facts,
    names=st.sampled_from([("drain",), ("write-off",), ("pause", PAUSE_ALL)]),
    tiers=NAMES,
    hosts=NAMES,
    gap_seconds=st.floats(0, 100),
    launch=st.none() | LAUNCH,
)
RULE = st.builds(
    ApprovalRule,
    always=st.lists(st.sampled_from(sorted(OFFERED)), unique=True).map(tuple),
    tiers=st.none() | st.integers(1, 5),
    hosts=st.none() | st.integers(1, 5),
    gap_seconds=st.none() | st.floats(0.1, 100),
    cost_per_day=st.none() | st.floats(0.1, 100),
)


def facts(hours=None, **spec):
    world = settled()
    world.rules = replace(world.rules, approval_hours=hours)
    draft = Draft(read_view(world.channel), PassInputs(now=0.0, lost=frozenset(), rules=world.rules))
    cluster = cluster_of_draft(draft)
    wish = ChangeSpec(**spec)
    return facts_of(wish, plan(wish, cluster), cluster, ("tier-lags:counts",), now=10 * 3600.0)


def test_a_pause_of_everything_asks_by_default_and_of_one_tier_not():
    assert "every tier" in reasons(facts(kind="pause"), ApprovalRule())["always"]
    assert facts(kind="pause").tiers == ("counts", "enrich", "entry", "outbound")
    assert not reasons(facts(kind="pause", tier="counts"), ApprovalRule())
    assert facts(kind="pause", workers=("slot-enrich-1-0",)).tiers == ("enrich",)


def test_a_write_off_asks_by_default():
    lost = facts(kind="write-off")
    assert "write-off" in reasons(lost, ApprovalRule())["always"]
    assert not reasons(lost, ApprovalRule(always=()))


@pytest.mark.parametrize("kind", ["drain", "reboot", "cordon", "return"])
def test_a_change_of_one_host_does_not_ask_by_default(kind):
    assert not reasons(facts(kind=kind, host="h1"), ApprovalRule())
    assert facts(kind=kind, host="h1").hosts == ("h1",)


@pytest.mark.parametrize(("begin", "asks"), [(9, True), (7, False), (11, False)])
def test_in_the_hours_of_the_rule_a_change_of_tiers_asks(begin, asks):
    hours = WindowConfig(schedule=f"0 {begin} * * *", hours=2, timezone="UTC")
    met = reasons(facts(hours, kind="pause", tier="counts"), ApprovalRule())
    assert ("hours" in met) is asks
    for harmless in ("cordon", "return"):
        assert not reasons(facts(hours, kind=harmless, host="h1"), ApprovalRule())
    assert not reasons(facts(hours, kind="resume"), ApprovalRule())


def test_while_an_alert_lasts_a_change_of_tiers_asks_if_the_rule_says_so():
    pause, rule = facts(kind="pause", tier="counts"), ApprovalRule(alerts=True)
    assert reasons(pause, rule) == {"alerts": "it touches counts while alerts last: tier-lags:counts"}
    assert not reasons(pause, ApprovalRule())
    assert not reasons(facts(kind="cordon", host="h1"), rule)
    assert not reasons(replace(pause, alerts=()), rule)


def test_every_condition_says_its_value_and_its_limit():
    met = reasons(
        Facts(("drain",), ("a", "b"), ("h1",), 4.5), ApprovalRule(tiers=2, hosts=1, gap_seconds=4.5)
    )
    assert met == {
        "tiers": "it touches 2 tiers (a, b); the limit is 2",
        "hosts": "it is about 1 host (h1); the limit is 1",
        "gap": "its predicted gap is 4.5 s; the limit is 4.5 s",
    }


@given(FACTS, RULE)
def test_a_stricter_rule_asks_at_least_as_often(each, rule):
    stricter = rule.model_copy(
        update={
            "tiers": 1,
            "hosts": 1,
            "gap_seconds": 0.1,
            "cost_per_day": 0.1,
            "always": tuple(sorted(OFFERED)),
        }
    )
    assert reasons(each, rule).keys() <= reasons(each, stricter).keys()
    assert not reasons(each, None)


@given(LAUNCH, RULE)
def test_a_burst_over_the_budget_asks_or_is_refused_whatever_the_rule(launch, rule):
    over = bool(launch.above(launch.budget))
    spec = ChangeSpec(kind="burst", tier="near", k=1, launch=launch)
    asks = reasons(Facts(("burst",), ("near",), (), 0.0, launch=launch), rule)
    assert ("cost" in asks) is bool(over or launch.above(rule.cost_per_day))
    assert bool(too_expensive(spec, None)) is over
    assert not too_expensive(spec, rule)


@given(FACTS, NAMES, NAMES)
def test_an_approval_covers_less_and_nothing_more(approved, tiers, hosts):
    now = replace(approved, tiers=tiers, hosts=hosts)
    covered = {*tiers} <= {*approved.tiers} and {*hosts} <= {*approved.hosts}
    assert (beyond(approved, now) == "") is covered


def test_every_kind_that_people_request_may_be_named():
    kinds = {name for name, kind in KINDS.items() if not kind.own and not kind.planned_only}
    assert {*OFFERED} == kinds | {PAUSE_ALL}


@pytest.mark.parametrize(
    ("by", "person"),
    [
        ("cli:anna", "anna"),
        ("airflow:anna", "anna"),
        ("airflow:drain_host/manual__1", ""),
        ("the scaler", ""),
    ],
)
def test_a_requester_is_a_person_or_a_run(by, person):
    assert person_of(by) == person


def site(**approval):
    host = {"name": "h1", "address": "127.0.0.1", "capacity": {"cpu": 1, "memory": "1g"}}
    return Site.model_validate({"pipeline": "p", "hosts": [host], **approval})


def test_the_site_file_has_a_rule_unless_it_says_off():
    assert site().approval == ApprovalConfig()
    assert site(approval=False).approval is None
    assert site(approval={"tiers": 3}).approval == ApprovalConfig(tiers=3)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (True, "True is no rule for approval: write off, or keys"),
        (None, "None is no rule for approval"),
        ({"always": ["fly"]}, "'fly' is no change that can wait for approval: write some of burst, "),
        ({"always": ["settle"]}, "'settle' is no change that can wait"),
        ({"tiers": 0}, "greater than or equal to 1"),
        ({"within_seconds": 100_000}, "less than or equal to 86400"),
        ({"hours": {"schedule": "0 22 * * *"}}, "Field required"),
        ({"cost_per_day": 0}, "greater than 0"),
        ({"money": 3}, "Extra inputs are not permitted"),
    ],
)
def test_a_wrong_rule_is_refused(value, message):
    with pytest.raises(ValidationError) as refused:
        site(approval=value)
    assert message in str(refused.value)
