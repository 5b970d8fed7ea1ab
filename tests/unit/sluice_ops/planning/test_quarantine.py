"""A host counts as failing if units of several tenants die there repeatedly, and run well on other
hosts. A host that minimums need is never quarantined.
"""

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from sluice_ops.model.assignment import Death
from sluice_ops.model.share import Share
from sluice_ops.planning.failing_hosts import (
    DEATHS,
    DOWN_SECONDS,
    MOST_PART,
    TENANTS,
    WINDOW_SECONDS,
    Evidence,
    allowed,
    failing,
    room_without,
)
from sluice_ops.planning.placement.cluster import Cluster, Rules, TierNow
from tests.unit.sluice_ops.planning.clusters import host_of, spec_of

NOW = 10_000.0
HOSTS = [f"h{number}" for number in range(1, 7)]
EVERYWHERE = {f"t{number}": HOSTS for number in range(4)}


def died(tenant, times, unit="slot-{}-1-0", at=NOW - 60):
    name = unit.format(tenant)
    return tuple(Death(unit=name, tenant=tenant, count=count + 1, at=at) for count in range(times))


def quarantined(seen, hosts_of_tenants=EVERYWHERE, now=NOW):
    return failing(seen, lambda tenant: hosts_of_tenants.get(tenant, ()), lambda at: now - at)


deaths = st.builds(
    Death,
    unit=st.sampled_from(
        ["slot-t0-1-0", "slot-t0-2-0", "slot-t1-1-0", "slot-t1-1-1", "driver-t1-3", "slot-t2-1-0"]
    ),
    tenant=st.just(""),
    count=st.integers(1, 20),
    at=st.sampled_from([NOW - 10, NOW - 100, NOW - WINDOW_SECONDS - 1]),
).map(lambda death: death.model_copy(update={"tenant": death.unit.split("-")[1]}))


@given(
    st.dictionaries(
        st.sampled_from(HOSTS), st.lists(deaths, max_size=25).map(lambda drawn: Evidence(tuple(drawn)))
    )
)
def test_a_failing_host_has_repeated_deaths_of_tenants_that_live_elsewhere(seen):
    repeated = {}
    for name, evidence in seen.items():
        places = Counter(
            (death.tenant, death.place) for death in evidence.deaths if NOW - death.at <= WINDOW_SECONDS
        )
        repeated[name] = {tenant for (tenant, _), count in places.items() if count >= DEATHS}
    for name, reason in quarantined(seen).items():
        blamed = [
            tenant
            for tenant in repeated[name]
            if 2 * sum(tenant in repeated.get(other, ()) for other in HOSTS if other != name) <= 5
        ]
        assert len(blamed) >= TENANTS
        assert all(tenant in reason for tenant in blamed)


def test_a_host_where_two_tenants_die_is_failing():
    seen = {"h2": Evidence((*died("t0", 3), *died("t1", 4))), "h3": Evidence(died("t0", 2))}
    assert quarantined(seen) == {"h2": "units of t0, t1 died there 7 times within 30 min"}


def test_deaths_of_a_single_tenant_do_not_count():
    assert quarantined({"h2": Evidence(died("t0", 30))}) == {}


def test_one_death_of_each_unit_does_not_count():
    seen = {
        "h2": Evidence(
            tuple(
                death for number in range(9) for death in died(f"t{number % 3}", 1, f"slot-{{}}-1-{number}")
            )
        )
    }
    assert quarantined(seen) == {}


def test_code_that_dies_on_every_host_is_not_the_hosts_fault():
    everywhere = {name: Evidence((*died("t0", 5), *died("t1", 5))) for name in HOSTS}
    assert quarantined(everywhere) == {}
    assert quarantined(
        {**everywhere, "h2": Evidence((*died("t0", 5), *died("t1", 5), *died("t2", 3), *died("t3", 3)))}
    ).keys() == {"h2"}


def test_drivers_of_one_incarnation_after_the_other_count_together():
    drivers = tuple(Death(unit=f"driver-t0-{number}", tenant="t0", count=1, at=NOW) for number in range(3))
    assert quarantined({"h2": Evidence((*drivers, *died("t1", 3)))}).keys() == {"h2"}


def test_units_that_cannot_start_count_after_some_time():
    down = (*died("t0", 1, at=NOW - DOWN_SECONDS), *died("t1", 1, at=NOW - DOWN_SECONDS))
    units = frozenset(death.unit for death in down)
    assert quarantined({"h2": Evidence(down, units)}).keys() == {"h2"}
    assert quarantined({"h2": Evidence(down)}) == {}, "the units run by now"
    assert quarantined({"h2": Evidence(down, units)}, now=NOW - 1) == {}


def test_old_deaths_do_not_count():
    assert quarantined({"h2": Evidence((*died("t0", 9), *died("t1", 9)))}, now=NOW + WINDOW_SECONDS) == {}


def test_the_host_with_most_deaths_comes_first():
    seen = {
        "h2": Evidence((*died("t0", 3), *died("t1", 3))),
        "h3": Evidence((*died("t2", 9), *died("t3", 3))),
    }
    assert [*quarantined(seen)] == ["h3", "h2"]


@given(st.integers(1, 10_000))
def test_few_hosts_are_quarantined_at_once(hosts):
    assert 1 <= allowed(hosts) <= max(1, MOST_PART * hosts)


def test_no_host_that_the_minimums_need_is_quarantined():
    specs = [spec_of("t0"), spec_of("t1")]
    rules = Rules(shares={spec.name: Share(minimum=2, target=4, maximum=4) for spec in specs}, partitions=8)
    tiers = {spec.name: TierNow(spec) for spec in specs}
    one = Cluster({"h1": host_of("h1", cpu=5), "h2": host_of("h2", cpu=5)}, tiers, (), rules)
    assert room_without({"h2"}, one) is None
    loaded = one.with_hosts({name: host.holding(specs[0].quantum, 5) for name, host in one.hosts.items()})
    assert room_without({"h2"}, loaded) is None, "running units are not in the way: only minimums count"
    three = replace(rules, shares={spec.name: Share(minimum=3, target=4, maximum=4) for spec in specs})
    assert "find no room" in room_without({"h2"}, replace(one, rules=three))
