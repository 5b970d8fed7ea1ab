"""The slots of `batch` are divided among jobs: minimums, then priority, then first come."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_ops.model.batch import BatchTenant
from sluice_ops.planning.batch_queue import Job, divide

TENANTS = {
    "reports": BatchTenant(minimum=1, maximum=2, priority=10),
    "training": BatchTenant(maximum=4),
    "default": BatchTenant(),
}


def job(name, tenant="default", wanted=None, least=1, at=0.0, granted=0, **fields):
    return Job(name, tenant, wanted, least, at, granted, fields.pop("started_with", granted), **fields)


@st.composite
def situations(draw):
    tenants = {
        name: BatchTenant(
            minimum=(low := draw(st.integers(0, 2))),
            maximum=draw(st.none() | st.integers(max(1, low), 5)),
            priority=draw(st.integers(0, 2)),
        )
        for name in "abc"
    }
    jobs = []
    for number in range(draw(st.integers(0, 7))):
        least = draw(st.integers(1, 3))
        granted = draw(st.sampled_from([0, 0, 1, 2]))
        jobs.append(
            Job(
                id=f"j{number}",
                tenant=draw(st.sampled_from("abcx")),
                wanted=draw(st.none() | st.integers(least, 5)),
                least=least,
                at=float(draw(st.integers(0, 3))),
                granted=granted,
                started_with=granted + draw(st.integers(0, 1)) if granted else 0,
                patient=draw(st.booleans()),
            )
        )
    assigned = draw(st.integers(0, 10))
    return jobs, tenants, assigned, draw(st.integers(0, assigned))


@given(situations())
def test_no_division_gives_more_than_there_is_or_than_is_allowed(situation):
    jobs, tenants, assigned, running = situation
    division = divide(*situation)
    assert sum(division.slots.values()) <= assigned
    started = [job for job in jobs if not job.granted and job.id in division.slots]
    if started:
        assert sum(division.slots.values()) <= running
    total = Counter()
    for one in jobs:
        total[one.tenant] += division.slots.get(one.id, 0)
    for one in started:
        assert one.least <= division.slots[one.id] <= (assigned if one.wanted is None else one.wanted)
        maximum = tenants[one.tenant].maximum
        assert maximum is None or total[one.tenant] <= maximum


@given(situations())
def test_a_running_job_loses_slots_only_if_batch_has_too_few(situation):
    jobs, _, assigned, _ = situation
    division = divide(*situation)
    held = [job for job in jobs if job.granted]
    lost = sum(max(0, job.granted - division.slots[job.id]) for job in held)
    assert lost == max(0, sum(job.granted for job in held) - assigned)
    assert all(division.slots[job.id] <= max(job.granted, job.started_with) for job in held)


@given(situations())
def test_each_queued_job_gets_slots_or_a_reason(situation):
    division = divide(*situation)
    queued = {job.id for job in situation[0] if not job.granted}
    assert {*division.waiting, *(name for name in division.slots if name in queued)} == queued
    assert not division.waiting.keys() & division.slots.keys()


@given(situations())
def test_a_second_division_changes_nothing(situation):
    jobs, tenants, assigned, running = situation
    first = divide(*situation)
    again = [
        replace(job, granted=slots, started_with=job.started_with or slots)
        if (slots := first.slots.get(job.id, 0))
        else job
        for job in jobs
        if first.slots.get(job.id) != 0
    ]
    second = divide(again, tenants, assigned, running)
    assert second.slots == {name: slots for name, slots in first.slots.items() if slots}


@given(situations())
def test_free_slots_never_idle_while_the_next_job_could_start(situation):
    jobs, _, _, running = situation
    division = divide(*situation)
    nexts = [name for name, reason in division.waiting.items() if reason.startswith("is next: needs")]
    free = running - sum(division.slots.values())
    assert all(free < job.least for job in jobs if job.id in nexts)
    assert len([reason for reason in division.waiting.values() if reason.startswith("is next")]) <= 1


@pytest.mark.parametrize(
    ("jobs", "slots"),
    [
        ([job("a", at=1), job("b", at=2)], {"a": 4}),
        ([job("a", wanted=1, at=1), job("b", at=2)], {"a": 1, "b": 3}),
        ([job("a", "training", at=1), job("b", "reports", at=2)], {"b": 2, "a": 2}),
        ([job("a", "training", least=4, at=1), job("b", "reports", at=2)], {"b": 2}),
        ([job("a", least=3, at=1, granted=3), job("b", "reports", at=2)], {"a": 3, "b": 1}),
        ([job("a", least=5, at=1), job("b", at=2)], {"b": 4}),
        ([job("a", "reports", granted=2, at=1), job("b", "reports", at=2)], {"a": 2}),
    ],
    ids=[
        "all slots go to the first",
        "the rest goes to the second",
        "a higher priority comes first",
        "a job waits for its least slots",
        "a running job keeps its slots",
        "a job that needs more than there is blocks nobody",
        "a tenant stays within its maximum",
    ],
)
def test_four_slots_are_divided(jobs, slots):
    assert divide(jobs, TENANTS, 4, 4).slots == slots


def test_a_minimum_comes_before_a_higher_priority():
    tenants = {"low": BatchTenant(minimum=1), "high": BatchTenant(priority=9)}
    jobs = [job("h", "high", wanted=4, at=1), job("l", "low", wanted=4, at=2)]
    assert divide(jobs, tenants, 4, 4).slots == {"l": 1, "h": 3}
    assert divide(jobs[1:], tenants, 4, 4).slots == {"l": 4}, "a minimum alone is no limit"


def test_the_lowest_priority_and_the_latest_job_give_back_first():
    jobs = [
        job("r", "reports", granted=1, at=3),
        job("old", "training", granted=1, at=1),
        job("new", "training", granted=1, at=2),
    ]
    assert divide(jobs, TENANTS, 2, 2).slots == {"r": 1, "old": 1, "new": 0}
    assert divide(jobs, TENANTS, 1, 1).slots == {"r": 1, "old": 0, "new": 0}


def test_slots_that_come_back_go_to_running_jobs_first():
    jobs = [job("a", granted=1, started_with=2, at=1), job("b", at=2)]
    assert divide(jobs, TENANTS, 2, 2).slots == {"a": 2}


def test_a_slot_that_restarts_is_not_taken_from_its_job():
    assert divide([job("a", granted=2)], TENANTS, 2, 1).slots == {"a": 2}


def test_a_patient_job_waits_for_slots_that_start():
    waits = divide([job("a", patient=True)], TENANTS, 2, 1)
    assert (waits.slots, waits.waiting) == ({}, {"a": "is next: waits for 1 slot to start"})
    assert divide([job("a", wanted=1, patient=True)], TENANTS, 2, 1).slots == {"a": 1}
    assert divide([job("a")], TENANTS, 2, 1).slots == {"a": 1}
