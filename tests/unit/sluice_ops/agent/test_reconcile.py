"""The agent's decisions, for every order of assignments, deaths and rounds that hypothesis
generates.
"""

from dataclasses import dataclass, field, replace
from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st

from sluice_ops.agent.units import reconcile as agent
from sluice_ops.agent.units.reconcile import (
    GRACE_SECONDS,
    LONGEST_WAIT_SECONDS,
    SOON_SECONDS,
    FoundUnit,
    Kill,
    ProcessorNeeds,
    Remove,
    RequestStop,
    SetWeights,
    Start,
    observe,
    on_monotonic_clock,
    retry_at,
    timestamps,
)
from sluice_ops.model.assignment import Assignment, Unit, UnitKind, UnitState, driver_id, label_of, slot_id
from sluice_ops.model.ids import BATCH, Incarnation, Tenant, UnitId
from sluice_ops.model.resources import Quantum

RECLAIM_SECONDS = 120.0
reconcile = partial(agent.reconcile, reclaim_seconds=RECLAIM_SECONDS)


def slot(tenant: str = "entry", incarnation: int = 1, number: int = 0, *, quiet: bool = False) -> Unit:
    return Unit(
        id=slot_id(tenant, incarnation, number),
        kind=UnitKind.SLOT,
        tenant=Tenant(tenant),
        incarnation=Incarnation(incarnation),
        quantum=Quantum(),
        label=label_of(tenant, incarnation),
        quiet=quiet,
    )


def driver(tenant: str = "entry", incarnation: int = 1) -> Unit:
    return slot(tenant, incarnation).model_copy(
        update={"id": driver_id(tenant, incarnation), "kind": UnitKind.DRIVER}
    )


@dataclass
class Host:
    """A host in memory that carries out actions; its units ignore a stop if `stubborn` is set."""

    stubborn: bool = False
    now: float = 1000.0
    units: dict[UnitId, FoundUnit] = field(default_factory=dict)
    started: list[UnitId] = field(default_factory=list)

    def round(self, assignment: Assignment) -> None:
        for action in reconcile(assignment, list(self.units.values()), self.now).actions:
            self.do(action)

    def do(self, action: object) -> None:
        match action:
            case Start(unit, restarts, failures):
                before = self.units.get(unit.id)
                assert before is None or not (before.alive or before.others), (
                    "a unit is started only where no process of it is left"
                )
                self.units[unit.id] = FoundUnit(
                    unit,
                    alive=True,
                    others=0,
                    started_at=self.now,
                    restarts=restarts,
                    failures=failures,
                    pid=1,
                )
                self.started.append(unit.id)
            case RequestStop(identity):
                self.change(identity, stopping_at=self.now)
                if not self.stubborn:
                    self.change(identity, alive=False, others=1, ended_at=self.now)
            case Kill(identity):
                self.change(
                    identity, alive=False, others=0, ended_at=self.units[identity].ended_at or self.now
                )
            case Remove(identity):
                gone = self.units.pop(identity)
                assert not gone.alive, "a running unit is not forgotten"
                assert not gone.others, "a unit with processes left is not forgotten"
            case SetWeights(unit):
                self.change(unit.id, unit=unit)

    def change(self, identity: UnitId, **changes: object) -> None:
        self.units[identity] = replace(self.units[identity], **changes)

    def die(self, identity: UnitId, leaving: int) -> None:
        item = self.units.get(identity)
        if item is not None and item.alive:
            self.change(identity, alive=False, others=leaving, ended_at=self.now, exit="killed by signal 9")

    def settle(self, assignment: Assignment, seconds: float = 1e9) -> None:
        """Run rounds at the agent's times: soon after an action, and at the time that the decision
        names.
        """
        end = self.now + seconds
        while self.now < end:
            decision = reconcile(assignment, list(self.units.values()), self.now)
            for action in decision.actions:
                self.do(action)
            if decision.actions:
                self.now += SOON_SECONDS
            elif decision.look_again_at is None:
                return
            else:
                assert decision.look_again_at > self.now, "the agent does not spin"
                self.now = decision.look_again_at


UNITS = [
    slot(),
    slot(number=1, quiet=True),
    driver(),
    slot("counts", 2),
    driver("counts", 2),
    slot(BATCH, 1),
    slot(BATCH, 1, 1),
]
assignments = st.lists(st.sampled_from(UNITS), unique_by=lambda unit: unit.id).map(
    lambda units: Assignment(units=tuple(units))
)
events = st.one_of(
    st.tuples(st.just("assign"), assignments),
    st.tuples(st.just("die"), st.tuples(st.sampled_from([unit.id for unit in UNITS]), st.integers(0, 2))),
    st.tuples(st.just("wait"), st.sampled_from([0.0, 0.3, 5.0, 61.0])),
)


@settings(max_examples=150)
@given(history=st.lists(events, max_size=30), last=assignments, stubborn=st.booleans())
def test_after_any_history_the_host_runs_exactly_its_assignment(
    history: list[tuple[str, object]], last: Assignment, *, stubborn: bool
) -> None:
    host = Host(stubborn=stubborn)
    assignment = Assignment()
    for kind, detail in history:
        match kind, detail:
            case "assign", Assignment():
                assignment = detail
            case "die", (identity, leaving):
                host.die(identity, leaving)
            case "wait", float():
                host.now += detail
        host.round(assignment)
    began = host.now
    host.settle(last)
    assert host.now - began < RECLAIM_SECONDS + LONGEST_WAIT_SECONDS + 2 * GRACE_SECONDS
    wanted = {unit.id: unit for unit in last.units}
    assert host.units.keys() == wanted.keys()
    for identity, item in host.units.items():
        assert item.unit == wanted[identity]
        assert item.stopping_at is None
        assert item.alive or item.unit.kind is UnitKind.DRIVER, (
            "only a driver stays down, because the controller decides about drivers"
        )
        assert item.alive or not item.others, "no process of a dead driver is left"
    settled = reconcile(last, list(host.units.values()), host.now)
    assert settled.actions == (), "an assigned state is left alone"
    assert settled.look_again_at is None


def test_a_driver_that_has_ended_is_reported_and_never_started_again() -> None:
    host, assignment = Host(), Assignment(units=(driver(),))
    host.round(assignment)
    host.die(driver().id, leaving=1)
    host.settle(assignment, 60)
    assert host.started == [driver().id]
    (seen,) = observe(assignment, list(host.units.values()), {}, ProcessorNeeds(), host.now)
    assert seen.state is UnitState.EXITED
    assert seen.exit == "killed by signal 9"


def test_a_slot_restarts_at_once_and_then_with_growing_delays() -> None:
    host, assignment = Host(), Assignment(units=(slot(),))
    host.round(assignment)
    waits = []
    for _ in range(8):
        host.die(slot().id, leaving=0)
        waits.append(retry_at(host.units[slot().id]) - host.now)
        host.now = retry_at(host.units[slot().id])
        host.round(assignment)
    assert waits == [0, 1, 2, 4, 8, 16, LONGEST_WAIT_SECONDS, LONGEST_WAIT_SECONDS]
    host.now += 100
    host.die(slot().id, leaving=0)
    assert retry_at(host.units[slot().id]) == host.now, "the slot had run well in between"


def test_left_overs_of_a_slot_are_killed_before_it_is_started_again() -> None:
    unit = FoundUnit(slot(), alive=False, others=3, started_at=0.0, ended_at=10.0)
    assert reconcile(Assignment(units=(slot(),)), [unit], 11.0).actions == (Kill(slot().id),)


def test_a_unit_is_stopped_with_a_grace_and_then_killed() -> None:
    unit = FoundUnit(slot(), alive=True, others=1, started_at=0.0)
    assert reconcile(Assignment(), [unit], 100.0).actions == (RequestStop(slot().id, decommission=False),)
    stopping = replace(unit, stopping_at=100.0)
    waiting = reconcile(Assignment(), [stopping], 105.0)
    assert waiting.actions == ()
    assert waiting.look_again_at == 100.0 + GRACE_SECONDS
    assert reconcile(Assignment(), [stopping], 100.0 + GRACE_SECONDS).actions == (Kill(slot().id),)


def test_a_lent_slot_returns_after_its_tasks_or_at_the_deadline() -> None:
    lent = slot(BATCH)
    unit = FoundUnit(lent, alive=True, others=1, started_at=0.0)
    assert reconcile(Assignment(), [unit], 100.0).actions == (RequestStop(lent.id, decommission=True),)
    busy = replace(unit, stopping_at=100.0)
    assert reconcile(Assignment(), [busy], 100.0 + RECLAIM_SECONDS - 1).actions == ()
    assert reconcile(Assignment(), [replace(busy, others=0)], 103.0).actions == (Kill(lent.id),)
    assert reconcile(Assignment(), [busy], 100.0 + RECLAIM_SECONDS).actions == (Kill(lent.id),)


def test_a_unit_that_is_no_longer_quiet_gets_its_weight_without_a_restart() -> None:
    unit = FoundUnit(slot(quiet=True), alive=True, others=1, started_at=0.0)
    assert reconcile(Assignment(units=(slot(),)), [unit], 1.0).actions == (SetWeights(slot()),)


def test_a_unit_of_another_size_is_ended_before_the_new_one_starts() -> None:
    larger = slot().model_copy(update={"quantum": Quantum(memory=2048)})
    unit = FoundUnit(slot(), alive=True, others=1, started_at=0.0)
    assert reconcile(Assignment(units=(larger,)), [unit], 1.0).actions == (
        RequestStop(slot().id, decommission=False),
    )


def test_a_failed_start_is_reported_with_its_reason() -> None:
    reason = "start failed: [Errno 28] No space left on device"
    seen = observe(
        Assignment(units=(slot(), driver())),
        [],
        {slot().id: reason, driver().id: reason},
        ProcessorNeeds(),
        5.0,
    )
    assert {(unit.state, unit.exit) for unit in seen} == {
        (UnitState.STARTING, reason),
        (UnitState.EXITED, reason),
    }


def test_unknown_fields_of_an_assignment_do_not_restart_a_unit() -> None:
    written = slot().model_dump()
    newer = Unit.model_validate(
        {**written, "of_next": 1, "quantum": {**written["quantum"], "gpu": 1}}, extra="allow"
    )
    unit = FoundUnit(slot(), alive=True, others=1, started_at=0.0, pid=1)
    assert reconcile(Assignment(units=(newer,)), [unit], 1.0).actions == ()
    assert '"gpu":1' in newer.model_dump_json(), (
        "unknown fields are kept when the assignment is written again"
    )


def test_times_of_a_unit_are_those_of_their_first_observation() -> None:
    unit = FoundUnit(slot(), alive=False, others=0, started_at=5000.0, stopping_at=5001.0, ended_at=1400.0)
    assert sorted(timestamps([unit])) == [1400.0, 5000.0, 5001.0]
    seen = {5000.0: 10.0, 5001.0: 11.0, 1400.0: 12.0}
    assert on_monotonic_clock(unit, seen.__getitem__) == replace(
        unit, started_at=10.0, stopping_at=11.0, ended_at=12.0
    )
