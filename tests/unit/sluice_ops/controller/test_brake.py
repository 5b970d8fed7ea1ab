"""The brake: if many hosts are lost at once, units stay assigned to them.

The brake ends when the hosts are back or an operator writes them off.
"""

from dataclasses import replace

import pytest
from simulation.world import HOSTS, RULES, StatusWorld, World, host

from sluice_ops.controller.pass_state import Draft, PassInputs
from sluice_ops.controller.policies import brake
from sluice_ops.model.change import Step
from sluice_ops.model.share import Share
from sluice_ops.model.status import ControllerStatus
from sluice_ops.snapshot.view import read_view

MANY = (*HOSTS, *(host(f"h{number}") for number in range(4, 11)))
WIDE = {name: Share(minimum=1, target=4, maximum=8) for name in ("entry", "enrich", "counts", "outbound")}


def spread_world(hosts=MANY, kind=StatusWorld):
    """Return a world with all tiers on all hosts."""
    running = kind(
        hosts=hosts, rules=RULES.__class__(shares={**RULES.shares, **WIDE}, shifts=RULES.shifts, partitions=8)
    )
    return running.bring_up()


@pytest.fixture
def world():
    return spread_world()


def placements(world):
    return {name: world.placement(name) for name in world.specs}


def lose(world, *names):
    for name in names:
        world.agents[name].die()
    for _ in range(20):
        world.tick()


def used(world):
    return sorted({name for placement in placements(world).values() for name in placement.hosts})


def test_a_few_lost_hosts_are_replaced(world):
    lost = used(world)[:2]
    lose(world, *lost)
    world.settle()
    assert not {*used(world)} & {*lost}


def test_many_lost_hosts_keep_their_units_and_continue_on_return(world):
    before, lost = placements(world), used(world)[:5]
    lose(world, *lost)
    assert placements(world) == before
    assert (
        f"BRAKE: many hosts were lost at once; nothing is moved away from {', '.join(sorted(lost))} until "
        "their agents are back" in world.sentences[-1]
    )
    assert "sluice write-off" in world.sentences[-1]
    for name in lost:
        world.agents[name].register()
    world.settle()
    assert {name: placement.slots for name, placement in placements(world).items()} == {
        name: placement.slots for name, placement in before.items()
    }


def test_the_brake_ends_soon_after_few_hosts_are_left(world):
    before, lost = placements(world), used(world)[:5]
    lose(world, *lost)
    for name in lost[:3]:
        world.agents[name].register()
    world.tick()
    left = ", ".join(sorted(lost[3:]))
    assert (
        f"BRAKE: many hosts were lost at once; nothing is moved away from {left} until" in world.sentences[-1]
    )
    assert placements(world) == before
    world.settle()
    assert not {*used(world)} & {*lost[3:]}
    assert any(
        f"the brake is off: few hosts are lost now, and the units on {left} are started elsewhere" in sentence
        for sentence in world.sentences
    )


@pytest.mark.parametrize("later", [0, 3])
def test_a_new_leader_waits_for_returning_hosts_too(world, later):
    before, lost = placements(world), used(world)[:5]
    lose(world, *lost)
    world.absences.forget()
    for _ in range(later):
        world.tick()
        assert set(world.braked) == set(lost)
    assert not any("the brake is off" in sentence for sentence in world.sentences)
    for name in lost:
        world.agents[name].register()
        for _ in range(5):
            world.tick()
            assert placements(world) == before
    assert not world.braked


@pytest.mark.parametrize("seconds", [1, 5])
def test_hosts_that_return_one_after_the_other_are_waited_for(world, seconds):
    before, lost = placements(world), used(world)[:5]
    lose(world, *lost)
    for name in lost:
        world.agents[name].register()
        for _ in range(seconds):
            world.tick()
            assert placements(world) == before
    world.settle()
    assert {name: placement.slots for name, placement in placements(world).items()} == {
        name: placement.slots for name, placement in before.items()
    }


def test_a_flapping_host_does_not_delay_others_unless_the_brake_held(world):
    alone, other = used(world)[:2]
    lose(world, other)
    world.settle()
    lose(world, alone)
    world.agents[other].register()
    world.settle()
    assert alone not in used(world)


def test_hosts_lost_one_after_the_other_are_counted_together(world):
    before, lost = placements(world), used(world)[:5]
    for name in lost:
        world.agents[name].die()
        world.tick()
    for _ in range(20):
        world.tick()
    assert placements(world) == before


def test_an_operator_writes_all_lost_hosts_off(world):
    lost = used(world)[:5]
    lose(world, *lost)
    runbook = world.begin("w1", kind="write-off")
    world.until(lambda: runbook.ended)
    assert runbook.ok
    assert runbook.results[Step.WRITE_OFF].sentence.startswith(f"{', '.join(sorted(lost))} are written off")
    world.settle()
    assert not {*used(world)} & {*lost}
    for name in lost:
        world.agents[name].register()
    world.settle()
    lose(world, *used(world)[:5])
    assert "BRAKE" in world.sentences[-1], "a written-off host that came back is no longer written off"


def test_a_new_leader_carries_out_a_persons_write_off():
    world = spread_world(kind=World)  # no status tells the next leader which hosts were held
    lost = used(world)[:5]
    lose(world, *lost)
    runbook = world.begin("w1", kind="write-off")
    world.until(lambda: runbook.current is Step.WRITE_OFF)
    world.absences.forget()
    world.tick()
    assert "whether the brake holds" in world.sentences[-1]
    assert f"{', '.join(sorted(lost))}: their agents are silent" in world.sentences[-1]
    world.until(lambda: runbook.ended)
    assert runbook.results[Step.WRITE_OFF].sentence.startswith(f"{', '.join(sorted(lost))} are written off")
    world.settle()
    assert not {*used(world)} & {*lost}


def test_a_new_leader_reports_the_end_of_the_brake_only_when_it_ends():
    world = World(hosts=MANY)
    view = replace(
        read_view(world.channel),
        status=ControllerStatus(leader="c1", epoch=1, at=0.0, sentence="", braked=("h1", "h2")),
    )
    away = {name: replace(host_view, live=name not in {"h1", "h2"}) for name, host_view in view.hosts.items()}
    for hosts, events in (
        (away, []),
        (view.hosts, ["the brake is off: h1, h2 are back, or were written off"]),
    ):
        draft = Draft(replace(view, hosts=hosts), PassInputs(now=0.0, lost=frozenset(), rules=RULES))
        brake.hosts_to_brake(draft).apply(draft)
        assert draft.events == events


def test_only_lost_hosts_can_be_written_off(world):
    runbook = world.begin("w1", kind="write-off", host="h1")
    world.until(lambda: runbook.ended)
    assert "not lost: its agent answers" in runbook.results[Step.PREFLIGHT].sentence
    runbook = world.begin("w2", kind="write-off")
    world.until(lambda: runbook.ended)
    assert "nothing to write off" in runbook.results[Step.WRITE_OFF].sentence
    world.settle()
    world.check_settled()


def test_hosts_without_units_do_not_count():
    world = spread_world(hosts=(*HOSTS, *(host(f"e{number}", zone="ec2") for number in range(20))))
    lose(world, *(f"e{number}" for number in range(20)))
    assert "BRAKE" not in world.sentences[-1]


def test_one_of_two_hosts_is_replaced():
    world = World(hosts=(host("h1"), host("h2")))
    world.bring_up()
    lose(world, "h1")
    world.settle()
    assert used(world) == ["h2"]
