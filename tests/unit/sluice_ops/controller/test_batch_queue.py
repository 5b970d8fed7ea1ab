"""Batch jobs get slots of `batch`, are told before slots go back, and lose them with their task."""

from copy import deepcopy
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulation.world import RULES, StatusWorld, host, tier

from sluice_ops.channel import ConflictError
from sluice_ops.controller.decide import decide
from sluice_ops.controller.pass_state import PassInputs
from sluice_ops.controller.split_writes import split_writes
from sluice_ops.model import paths
from sluice_ops.model.batch import LEASE_SECONDS, BatchGrants, BatchRequest, BatchTenant, task_seconds
from sluice_ops.model.ids import BATCH
from sluice_ops.model.resources import Frozen
from sluice_ops.model.share import Share
from sluice_ops.model.tier import Mode
from sluice_ops.process.durations import TimestampAges
from sluice_ops.snapshot.stamps import stamps
from sluice_ops.snapshot.view import read_view

TENANTS = {"reports": BatchTenant(minimum=1, maximum=2, priority=10), "training": BatchTenant()}
SHARES = {"counts": Share(minimum=1, target=1, maximum=8), BATCH: Share(minimum=0, target=2, maximum=2)}


class QueueWorld(StatusWorld):
    """A world with batch jobs, whose tasks renew their requests every second."""

    def __init__(self, **rules):
        super().__init__(
            hosts=[host("h1", cpu=4.0)],
            tiers=[tier("counts", Mode.BATCH, 0)],
            rules=replace(RULES, shares=SHARES, batch_tenants=TENANTS, reclaim_seconds=30.0, **rules),
        )
        self.alive = set()
        self.want()

    def post(self, job, tenant="training", **fields):
        self.alive.add(job)
        request = BatchRequest(tenant=tenant, by="dag", at=self.wall(), renewed_at=self.wall(), **fields)
        self.channel.put(paths.batch_job(job), request)

    def end(self, job):
        self.alive.discard(job)
        self.channel.delete(paths.batch_job(job))

    def tick(self, seconds=1.0):
        at = self.wall() + 0.25  # no stamp of the controller: an equal stamp would have its age
        for job in sorted(self.alive):
            read = self.channel.read(paths.batch_job(job), BatchRequest)
            if read is not None:
                self.channel.put(paths.batch_job(job), read.value.model_copy(update={"renewed_at": at}))
        super().tick(seconds)

    @property
    def queue(self):
        read = self.channel.read(paths.BATCH_GRANTS, BatchGrants)
        return BatchGrants() if read is None else read.value

    @property
    def slots(self):
        return {job: grant.slots for job, grant in self.queue.grants.items()}

    @property
    def lent(self):
        return [unit.id for unit in self.assigned("h1") if unit.tenant == BATCH]


@cache
def _settled():
    world = QueueWorld()
    world.settle()
    assert len(world.lent) == 2
    return world


@pytest.fixture
def world():
    return deepcopy(_settled())


def test_a_job_gets_the_lent_slots_and_the_next_one_waits(world):
    world.post("a")
    world.tick()
    world.post("b")
    world.tick()
    assert world.slots == {"a": 2}
    assert world.queue.waiting == {"b": "is next: needs 1 slot, and 0 are free"}
    assert "batch job a of training gets 2 slot(s)" in " ".join(world.sentences)
    world.end("a")
    world.tick()
    assert (world.slots, world.queue.waiting) == ({"b": 2}, {})


def test_a_queued_job_starts_when_slots_are_lent():
    world = QueueWorld()
    world.post("a")
    world.tick()
    assert world.slots == {}
    world.until(lambda: world.slots)
    assert world.slots == {"a": 2}, "the job waits for both slots to start"


def test_a_job_of_an_unknown_tenant_waits_with_the_known_names(world):
    world.post("a", tenant="report")
    world.tick()
    assert world.queue.waiting == {"a": "the site file has no batch tenant report; it has reports, training"}


def test_a_job_whose_task_is_gone_frees_its_slots_after_the_lease(world):
    world.post("a")
    world.tick()
    world.post("b")
    world.alive.discard("a")
    world.tick(LEASE_SECONDS - 5)
    assert world.slots == {"a": 2}
    world.tick(10)
    assert world.slots == {"b": 2}
    assert not world.channel.exists(paths.batch_job("a"))
    assert "batch job a ends: its task in Airflow is gone" in " ".join(world.sentences)


def test_a_lease_outlives_short_silence_and_jumps_of_the_clock(world):
    world.post("a")
    world.tick()
    world.alive.discard("a")
    world.ahead = 86400.0
    world.tick(LEASE_SECONDS - 5)
    assert world.slots == {"a": 2}


@pytest.mark.parametrize(("led", "keeps"), [(LEASE_SECONDS - 1, True), (LEASE_SECONDS + 1, False)])
def test_tasks_may_renew_after_an_outage_in_which_nobody_led(world, led, keeps):
    world.post("a")
    world.tick()
    view = read_view(world.channel)
    ages = dict.fromkeys(stamps(view), 3600.0)
    inputs = PassInputs(
        now=world.wall(), lost=frozenset(), rules=world.rules, known_seconds=ages, led_seconds=led
    )
    written = {write.path for write in decide(view, inputs).writes}
    assert (paths.batch_job("a") not in written) is keeps


def test_a_job_is_told_before_its_slots_are_taken_back(world):
    world.post("a")
    world.tick()
    order = []
    multi = world.channel.multi

    def watched(writes):
        multi(writes)
        order.append((len(world.lent), sum(world.slots.values())))

    world.channel.multi = watched
    world.begin("s1", kind="scale", tier="counts", k=2)
    world.until(lambda: len(world.lent) < 2)
    assert all(granted <= lent for lent, granted in order)
    grant = world.queue.grants["a"]
    assert (grant.slots, grant.started_with) == (len(world.lent), 2)
    assert grant.back_by == pytest.approx(world.wall() + task_seconds(30.0), abs=2)
    assert "needed for scale of test" in grant.reason


def test_the_lowest_priority_ends_and_is_not_granted_again(world):
    world.post("low", slots=1)
    world.post("high", tenant="reports", slots=1)
    world.tick()
    assert world.slots == {"low": 1, "high": 1}
    world.rules = replace(world.rules, shares={**SHARES, BATCH: Share(minimum=0, target=1, maximum=2)})
    world.tick()
    assert world.slots == {"high": 1, "low": 0}
    world.rules = replace(world.rules, shares=SHARES)
    for _ in range(10):
        world.tick()
    assert world.slots == {"high": 1, "low": 0}, "its task has to end it, and queues a new job"
    world.end("low")
    world.post("low2", slots=1)
    world.tick()
    assert world.slots == {"high": 1, "low2": 1}


def test_a_slot_that_comes_back_is_given_to_the_job_that_lost_it(world):
    world.post("a")
    world.tick()
    world.rules = replace(world.rules, shares={**SHARES, BATCH: Share(minimum=0, target=1, maximum=2)})
    world.tick()
    assert world.slots == {"a": 1}
    world.rules = replace(world.rules, shares=SHARES)
    world.post("b")
    world.until(lambda: world.slots == {"a": 2})
    assert world.queue.grants["a"].back_by is None


class Other(Frozen):
    """A value of a newer version."""

    grants: str = "new"


def test_unreadable_grants_stop_only_the_queue(world):
    world.channel.put(paths.BATCH_GRANTS, Other())
    world.post("a")
    world.begin("s1", kind="scale", tier="counts", k=2)
    world.settle()
    assert world.channel.read(paths.BATCH_GRANTS, Other).value.grants == "new"
    assert len(world.placement("counts").slots) == 2
    assert "the grants of batch jobs cannot be read" in world.sentences[-1]


def test_a_job_with_an_unreadable_request_keeps_its_slots(world):
    world.post("a")
    world.tick()
    world.alive.discard("a")
    world.channel.put(paths.batch_job("a"), Other())
    world.post("b")
    for _ in range(5):
        world.tick()
    assert world.slots == {"a": 2}


@pytest.mark.parametrize("requests", range(4))
def test_a_controller_killed_while_it_takes_slots_back_has_told_the_job(world, requests):
    world.post("a")
    world.tick()
    world.rules = replace(world.rules, shares={**SHARES, BATCH: Share(minimum=0, target=0, maximum=2)})
    die_after(world, requests)
    assert sum(world.slots.values()) <= len(world.lent)
    world.tick()
    assert (world.slots, world.lent) == ({"a": 0}, [])


ACTIONS = ("post", "post least", "end", "vanish", "lend 0", "lend 1", "lend 2", "tick", "die")


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 3)), max_size=12))
def test_a_controller_killed_between_writes_leaves_a_queue_that_recovers(actions):
    world = deepcopy(_settled())
    for number, (action, amount) in enumerate(actions):
        if action.startswith("post"):
            world.post(f"j{number}", "reports" if amount % 2 else "training", least=1 + ("least" in action))
        elif action in {"end", "vanish"} and world.alive:
            job = sorted(world.alive)[amount % len(world.alive)]
            world.end(job) if action == "end" else world.alive.discard(job)
        elif action.startswith("lend"):
            lent = Share(minimum=0, target=int(action[-1]), maximum=2)
            world.rules = replace(world.rules, shares={**SHARES, BATCH: lent})
        elif action == "die":
            die_after(world, amount)
        else:
            world.tick()
        assert sum(world.slots.values()) <= len(world.lent)
    for seconds in (1.0, LEASE_SECONDS + 5, *(1.0 for _ in range(10))):
        world.tick(seconds)
    jobs = set(world.channel.children(paths.BATCH_JOBS))
    assert jobs == world.alive
    assert {*world.queue.grants, *world.queue.waiting} == jobs
    assert sum(world.slots.values()) <= len(world.lent)


def die_after(world, requests):
    """Write only the first requests of a pass, and begin as a new leader."""
    view = read_view(world.channel)
    decision = decide(view, PassInputs(now=world.wall(), lost=frozenset(), rules=world.rules))
    for request in split_writes(decision.writes, view, most=1)[:requests]:
        try:
            world.channel.multi(request)
        except ConflictError:
            break
    world.ages, world.settled = TimestampAges(world.clock), None
