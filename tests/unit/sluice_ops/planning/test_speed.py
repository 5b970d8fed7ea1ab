"""Rules that keep tiers apart make planning little slower.

The tests compare processor time with the same plan without rules, because a machine may be busy.
They take the median of rounds in which both plans run.
"""

import gc
import time
from dataclasses import replace
from statistics import median

import pytest

from sluice_ops.controller.decide import decide
from sluice_ops.local.simulation.cluster import Size, rules, tiers, unplanned
from sluice_ops.model.spread import Spread

SIZE = Size(800, 3200)
RACKS = 20
ROUNDS = 5
MOST = 2.0
"""A plan under rules may take at most this many times as long."""


def half(number):
    return "odd" if number % 2 else "even"


def planning_input(**changed):
    """Return a controller's input for planning: every host is up, every tier is wanted, and nothing
    runs yet.
    """
    view, moment = unplanned(SIZE)
    hosts = {}
    for number, (name, host) in enumerate(view.hosts.items()):
        facts = host.facts.model_copy(update={"rack": f"r{number % RACKS}", "labels": (half(number),)})
        hosts[name] = replace(host, facts=facts)
    return replace(view, hosts=hosts), replace(moment, rules=replace(rules(SIZE), **changed))


def seconds(planned):
    """Return the processor time of a pass that places every slot. Unit: seconds."""
    gc.collect()
    began = time.process_time()
    decision = decide(*planned)
    took = time.process_time() - began
    assert decision.sentence.count(" starts, driver on ") == len(tiers(SIZE))
    return took


NAMES, HOSTS = list(tiers(SIZE)), sorted(unplanned(SIZE)[0].hosts)
UNDER = {
    "spread over hosts": {"spread": dict.fromkeys(NAMES, Spread(host=1))},
    "spread over racks": {"spread": dict.fromkeys(NAMES, Spread(host=2, rack=60, zone=2000))},
    "pinned workers": {"pinned": {name: {host: 1} for name, host in zip(NAMES, HOSTS, strict=False)}},
    "separate and budgets": {
        "separate": tuple(frozenset(NAMES[number : number + 2]) for number in range(0, len(NAMES), 2)),
        "budget": dict.fromkeys(NAMES, 1),
    },
}
BESIDE = {
    "separate and budgets": {"locality": {name: f"label:{half(number)}" for number, name in enumerate(NAMES)}}
}
"""Rules of both plans: separate tiers need hosts of their own."""


@pytest.mark.parametrize("rule", UNDER)
def test_a_plan_under_rules_takes_little_longer(rule):
    beside = BESIDE.get(rule, {})
    without, under = planning_input(**beside), planning_input(**beside, **UNDER[rule])
    times = [(seconds(without), seconds(under)) for _ in range(ROUNDS)]
    plain, ruled = (median(column) for column in zip(*times, strict=True))
    assert ruled <= MOST * plain, f"{ruled * 1000:.0f} ms under {rule}, {plain * 1000:.0f} ms without"
