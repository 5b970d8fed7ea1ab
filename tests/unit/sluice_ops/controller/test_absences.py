"""Hosts whose agents are away: when they count as lost, and how long a start waits for them."""

from dataclasses import replace
from math import inf

import pytest

from sluice_ops.controller.decide import decide
from sluice_ops.controller.leader import Absences
from sluice_ops.local.simulation.cluster import Size, unplanned
from sluice_ops.model.status import ControllerStatus, TierState


def with_away(count, hosts=40):
    view, inputs = unplanned(Size(hosts, hosts * 2))
    away = set(list(view.hosts)[:count])
    return (
        replace(
            view, hosts={name: replace(host, live=name not in away) for name, host in view.hosts.items()}
        ),
        inputs,
        away,
    )


def test_the_leader_is_due_when_the_next_host_counts_as_lost():
    now = 0.0
    absences = Absences(12.0, lambda: now)
    view, _, away = with_away(1)
    assert absences.due() == inf
    assert absences.lost(view) == frozenset()
    now = 5.0
    assert absences.due() == pytest.approx(7.0)
    now = 12.0
    assert absences.lost(view) == away
    now = 12.5
    assert absences.due() == inf


def test_after_a_braked_host_returns_others_may_follow_for_a_moment():
    now = 0.0
    absences = Absences(12.0, lambda: now)
    view, _, away = with_away(2)
    first, _ = sorted(away)
    back = view.hosts | {first: replace(view.hosts[first], live=True)}
    status = ControllerStatus(leader="c1", epoch=1, at=0.0, sentence="", braked=tuple(sorted(away)))
    absences.lost(view)
    now = 12.0
    absences.lost(replace(view, hosts=back))
    assert not absences.braked_return(), "the brake did not hold this host"
    now = 13.0
    absences.lost(replace(view, status=status))
    assert not absences.braked_return(), "no host is back"
    now = 20.0
    absences.lost(replace(view, hosts=back, status=status))
    assert absences.braked_return()
    assert absences.due() == pytest.approx(12.0)
    now = 32.5
    assert absences.due() == 0.0, "the last pass expects other hosts to return"
    absences.lost(replace(view, hosts=back))
    assert not absences.braked_return()
    assert absences.due() == inf


def test_the_leader_is_due_at_once_for_a_host_that_expired_during_the_pass():
    now = 0.0
    absences = Absences(12.0, lambda: now)
    view, _, away = with_away(1)
    absences.lost(view)
    now = 11.9
    assert absences.lost(view) == frozenset()
    now = 12.1
    assert absences.due() == 0.0, "due at once, and not only when another event wakes the leader"
    assert absences.lost(view) == away
    assert absences.due() == inf


def test_a_start_waits_for_many_hosts_and_not_for_a_few():
    view, inputs, away = with_away(4)
    decided = decide(view, inputs)
    assert {status.state for status in decided.tiers.values()} == {TierState.STARTING}
    assert not {write.path.rsplit("/", 1)[1] for write in decided.writes} & away, (
        "a host that is away gets no units"
    )
    view, inputs, _ = with_away(5)
    assert {status.state for status in decide(view, inputs).tiers.values()} == {TierState.WAITING}
