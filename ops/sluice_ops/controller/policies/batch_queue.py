"""The slots of `batch` are divided among batch jobs; jobs without a living task lose theirs."""

from collections.abc import Mapping
from dataclasses import dataclass

from sluice_ops.controller.pass_state import Draft
from sluice_ops.model.assignment import UnitState, slot_id
from sluice_ops.model.batch import LEASE_SECONDS, BatchGrants, BatchRequest, Grant, task_seconds
from sluice_ops.model.ids import BATCH
from sluice_ops.model.wording import listed
from sluice_ops.planning.batch_queue import Job, divide

START_SECONDS = 60.0
"""How long a queued job waits for lent slots that start, rather than begin with fewer."""


@dataclass(frozen=True)
class QueueRuling:
    """The grants from now on."""

    grants: BatchGrants | None
    ended: tuple[str, ...] = ()
    """Jobs whose requests are deleted, because no task has renewed them."""
    events: tuple[str, ...] = ()

    def apply(self, draft: Draft) -> None:
        """Write the grants, and delete the ended requests."""
        draft.batch_grants = self.grants
        draft.ended_batch_jobs = self.ended
        draft.log(*self.events)


def divided_slots(draft: Draft) -> QueueRuling:
    """Decide which job has how many slots, once the slots of `batch` are decided.

    A job whose slots go back is told in the pass that takes them back: its tasks in these slots
    have `task_seconds` from then on.
    """
    before = draft.view.batch_grants
    if before is None:
        return QueueRuling(None)
    requests = draft.view.batch_requests
    ended = tuple(
        name
        for name, request in requests.items()
        if min(draft.age(request.renewed_at), draft.inputs.led_seconds) > LEASE_SECONDS
    )
    alive = {name: request for name, request in requests.items() if name not in ended}
    grants = {
        name: grant
        for name, grant in before.grants.items()
        if name in alive or name in draft.view.unread_batch_jobs
    }
    told_to_end = {name: grant for name, grant in grants.items() if grant.slots == 0}
    jobs = [
        *(
            _job(draft, name, request, grants.get(name))
            for name, request in alive.items()
            if name not in told_to_end
        ),
        *(_unread_job(name, grants[name]) for name in draft.view.unread_batch_jobs & grants.keys()),
    ]
    division = divide(jobs, draft.rules.batch_tenants, len(draft.batch), _running(draft))
    after = {name: _grant(draft, grants.get(name), slots) for name, slots in division.slots.items()}
    return QueueRuling(
        before.model_copy(
            update={"grants": {**told_to_end, **after}, "waiting": dict(sorted(division.waiting.items()))}
        ),
        ended,
        (
            *(f"batch job {name} ends: its task in Airflow is gone" for name in ended),
            *_events(alive, grants, after),
        ),
    )


def _job(draft: Draft, name: str, request: BatchRequest, grant: Grant | None) -> Job:
    return Job(
        id=name,
        tenant=request.tenant,
        wanted=request.slots,
        least=request.least,
        at=request.at,
        granted=0 if grant is None else grant.slots,
        started_with=0 if grant is None else grant.started_with,
        patient=draft.age(request.at) < START_SECONDS,
    )


def _unread_job(name: str, grant: Grant) -> Job:
    """Return a running job of an unknown tenant: it gives slots back last."""
    return Job(name, "", None, 1, grant.at, grant.slots, grant.started_with)


def _running(draft: Draft) -> int:
    """Return how many of the slots of `batch` run."""
    return sum(
        unit.id == slot_id(BATCH, 0, number) and unit.state is UnitState.RUNNING
        for number, name in draft.batch.items()
        if (host := draft.host(name)) is not None and host.live and host.observed is not None
        for unit in host.observed.units
    )


def _grant(draft: Draft, before: Grant | None, slots: int) -> Grant:
    if before is None:
        return Grant(slots=slots, started_with=slots, at=draft.now)
    if slots == before.slots:
        return before
    if slots > before.slots:
        back = {} if slots < before.started_with else {"back_by": None, "reason": ""}
        return before.model_copy(update={"slots": slots, **back})
    return before.model_copy(
        update={
            "slots": slots,
            "back_by": draft.now + task_seconds(draft.rules.reclaim_seconds),
            "reason": _why_back(draft),
        }
    )


def _why_back(draft: Draft) -> str:
    """Say which slots `batch` gives back, and for what."""
    needed = taken_for(draft)
    return f"batch keeps {len(draft.batch)} slot(s)" + (f": others are needed for {needed}" if needed else "")


def taken_for(draft: Draft) -> str:
    """Name the tiers and changes that need slots of `batch`; empty if its share is smaller now."""
    for_tiers = sorted(draft.shortage.promised)
    for_changes = [
        f"{change.spec.kind} of {change.by}" for change in draft.active_changes() if change.plan.moves
    ]
    return listed([*for_tiers, *for_changes])


def _events(
    alive: Mapping[str, BatchRequest], before: Mapping[str, Grant], after: Mapping[str, Grant]
) -> list[str]:
    events = []
    for name, grant in after.items():
        had = before[name].slots if name in before else 0
        if grant.slots > had:
            tenant = alive[name].tenant if name in alive else "an unknown tenant"
            events.append(f"batch job {name} of {tenant} gets {grant.slots - had} slot(s)")
        elif grant.slots < had:
            events.append(f"batch job {name} gives back {had - grant.slots} slot(s): {grant.reason}")
    return events
