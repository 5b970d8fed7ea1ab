"""Rules that keep things apart cost planning little: held against the same plan without them, for a machine may be busy.

Processor time, and the median of some rounds in which each plan has its turn.
"""

import gc
import time
from dataclasses import replace
from statistics import median

import pytest

from sluice_ops.controller.decide import decide
from sluice_ops.local.simulation.cluster import Size, rules, tiers, unplanned
from sluice_ops.model.spread import Spread

pytestmark = pytest.mark.timeout(120)

SIZE = Size(800, 3200)
RACKS = 20
ROUNDS = 5
MOST = 2.0
"""So many times as long a plan may take under rules."""


def half(number):
    return "odd" if number % 2 else "even"


def everything(**changed):
    """Return what a controller plans from: every host is there, every tier is wanted, and nothing runs yet."""
    view, moment = unplanned(SIZE)
    hosts = {}
    for number, (name, host) in enumerate(view.hosts.items()):
        facts = host.facts.model_copy(update={"rack": f"r{number % RACKS}", "labels": (half(number),)})
        hosts[name] = replace(host, facts=facts)
    return replace(view, hosts=hosts), replace(moment, rules=replace(rules(SIZE), **changed))


def seconds(planned):
    """Return how much of a processor a pass takes that places every slot."""
    gc.collect()
    began = time.process_time()
    found = decide(*planned)
    took = time.process_time() - began
    assert found.sentence.count(" starts, driver on ") == len(tiers(SIZE))
    return took


NAMES = list(tiers(SIZE))
UNDER = {
    "spread over hosts": {"spread": dict.fromkeys(NAMES, Spread(host=1))},
    "spread over racks": {"spread": dict.fromkeys(NAMES, Spread(host=2, rack=60, zone=2000))},
    "separate and budgets": {
        "separate": tuple(frozenset(NAMES[number : number + 2]) for number in range(0, len(NAMES), 2)),
        "budget": dict.fromkeys(NAMES, 1),
    },
}
BESIDE = {
    "separate and budgets": {"locality": {name: f"label:{half(number)}" for number, name in enumerate(NAMES)}}
}
"""What both plans have to have: tiers that are separate need hosts of their own, or there is no plan."""


@pytest.mark.parametrize("what", UNDER)
def test_a_plan_under_rules_takes_not_much_longer_than_without(what):
    beside = BESIDE.get(what, {})
    without, under = everything(**beside), everything(**beside, **UNDER[what])
    times = [(seconds(without), seconds(under)) for _ in range(ROUNDS)]
    plain, ruled = (median(column) for column in zip(*times, strict=True))
    assert ruled <= MOST * plain, f"{ruled * 1000:.0f} ms under {what}, {plain * 1000:.0f} ms without"
