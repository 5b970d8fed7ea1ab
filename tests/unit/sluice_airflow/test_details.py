"""What the page shows of one host, one tier and one change."""

import pytest

from sluice_airflow.page.details import UnknownNameError, change_detail, host_detail, tier_detail
from sluice_ops.model import paths
from sluice_ops.model.assignment import (
    Assignment,
    HostFacts,
    Observed,
    Unit,
    UnitKind,
    UnitObserved,
    UnitState,
    driver_id,
    label_of,
)
from sluice_ops.model.change import (
    ChangeRecord,
    ChangeSpec,
    ChangeState,
    JournalEntry,
    Move,
    Operation,
    Plan,
    Result,
    Step,
)
from sluice_ops.model.ids import ChangeId, HostName, Incarnation, Tenant, TierName
from sluice_ops.model.incarnation import IncarnationReport, IncarnationSpec, OwnerRecord, Placement, State
from sluice_ops.model.resources import Quantum
from sluice_ops.model.tier import Delivery, Kind, Mode, TierSpec
from sluice_ops.operations.requests import operation_id
from sluice_ops.snapshot.view import read_view
from tests.simulation.memory import MemoryChannel

H1, ENTRY, DRAIN = HostName("h1"), TierName("entry"), ChangeId("drain-1")
DRIVER = driver_id(ENTRY, 4)


@pytest.fixture
def channel():
    """Incarnation 3 of `entry` failed on h1, and 4 owns the tier there."""
    channel = MemoryChannel()
    tier = TierSpec(
        name=ENTRY, kind=Kind.ENTRY, mode=Mode.REALTIME, delivery=Delivery.AT_LEAST_ONCE, inputs=("raw",)
    )
    channel.put(paths.tier(ENTRY), tier)
    for number, state, error in ((3, State.FAILED, "no such column: at"), (4, State.RUNNING, None)):
        spec = IncarnationSpec(
            tier=ENTRY,
            incarnation=Incarnation(number),
            placement=Placement(driver=H1, slots=()),
            reason="start",
            created_at=1.0,
        )
        channel.put(paths.incarnation(ENTRY, number), spec)
        channel.put(paths.report(ENTRY, number), IncarnationReport(state=state, since=0, pid=1, error=error))
    channel.put(paths.owner(ENTRY), OwnerRecord(owner=Incarnation(4)))
    channel.put(paths.host(H1), HostFacts(name=H1, address="", zone="onprem", cpu=8, memory=8192))
    unit = Unit(
        id=DRIVER,
        kind=UnitKind.DRIVER,
        tenant=Tenant(ENTRY),
        incarnation=Incarnation(4),
        quantum=Quantum(),
        label=label_of(ENTRY, 4),
    )
    channel.put(paths.assignment(H1), Assignment(epoch=1, units=(unit,)))
    ended = UnitObserved(id=driver_id(ENTRY, 3), state=UnitState.EXITED, exit="exit code 1", since=2.0)
    channel.put(paths.observed(H1), Observed(units=(ended,), agent_started=1.0, limits="cgroup v2"))
    return channel


def test_a_host_has_what_it_should_run_and_what_ended_there(channel):
    found = host_detail(read_view(channel), "h1")
    shown = [(unit["id"], unit["assigned"], unit["state"], unit["exit"]) for unit in found["units"]]
    assert shown == [
        (driver_id(ENTRY, 3), False, "exited", "exit code 1"),
        (DRIVER, True, None, None),
    ]


def test_a_host_without_a_report_of_its_agent_is_shown(channel):
    channel.delete(paths.observed(H1))
    found = host_detail(read_view(channel), "h1")
    assert (found["limits"], [unit["id"] for unit in found["units"]]) == (None, [DRIVER])


def test_a_tier_has_its_declaration_and_its_incarnations(channel):
    found = tier_detail(read_view(channel), "entry")
    assert (found["spec"]["inputs"], found["spec"]["mode"]) == (["raw"], "realtime")
    shown = [(each["number"], each["owner"], each["state"], each["error"]) for each in found["incarnations"]]
    assert shown == [(4, True, "running", None), (3, False, "failed", "no such column: at")]


def test_a_change_has_its_posted_steps_with_results_moves_and_receipts(channel):
    here, there = Placement(driver=H1, slots=()), Placement(driver=HostName("h2"), slots=())
    spec = ChangeSpec(kind="drain", host=H1)
    record = ChangeRecord(
        id=DRAIN,
        spec=spec,
        plan=Plan(moves=(Move(tier=ENTRY, before=here, after=there),), notes=("a note",)),
        state=ChangeState.ABORTED,
        by="cli:anna",
        started_at=1.0,
        ended_at=9.0,
        incarnations={ENTRY: 5},
        receipts={ENTRY: {"raw/0": 7}},
    )
    channel.put(paths.change(DRAIN), record)
    for step, ok, sentence in (
        (Step.ABORT, True, "undone"),
        (Step.PREFLIGHT, True, "would do"),
        (Step.PREPARE, False, "entry did not start"),
    ):
        operation = Operation(
            id=operation_id(DRAIN, step), change=DRAIN, step=step, spec=spec, by="cli:anna", posted_at=1.0
        )
        channel.put(paths.operation(operation.id), operation)
        channel.put(paths.result(operation.id), Result(ok=ok, sentence=sentence, finished_at=2.0))
    prepare = operation_id(DRAIN, Step.PREPARE)
    channel.put(f"{paths.journal(prepare)}/0000000000", JournalEntry(at=1.0, sentence="5 starts on h2"))
    found = change_detail(channel, read_view(channel), DRAIN)
    assert [(step["step"], step["state"]) for step in found["steps"]] == [
        ("preflight", "done"),
        ("prepare", "failed"),
        ("abort", "done"),
    ]
    assert found["steps"][1]["journal"] == ["5 starts on h2"]
    (move,) = found["moves"]
    assert (move["tier"], move["after"]["driver"], move["incarnation"], move["receipt"]) == (
        "entry",
        "h2",
        5,
        {"raw/0": 7},
    )
    assert (found["change"]["what"], found["change"]["seconds"], found["notes"]) == (
        "drain h1",
        8.0,
        ["a note"],
    )


@pytest.mark.parametrize(
    ("detail", "sentence"),
    [
        (lambda view: host_detail(view, "h9"), "there is no host 'h9'; hosts: h1"),
        (lambda view: tier_detail(view, "x"), "there is no tier 'x'; tiers: entry"),
        (lambda view: change_detail(MemoryChannel(), view, "old"), "there is no change 'old'"),
    ],
)
def test_an_unknown_name_is_refused_with_what_there_is(channel, detail, sentence):
    with pytest.raises(UnknownNameError, match=sentence):
        detail(read_view(channel))
