"""The progress of a change: how far it is, how long it will take, and whether it is slow or stuck.

Pure.
"""

from enum import StrEnum

from sluice_ops.model.change import UPGRADE, ChangeRecord, ChangeState, Operation, Step
from sluice_ops.model.ids import ChangeId, Incarnation, TierName
from sluice_ops.model.incarnation import State
from sluice_ops.model.resources import Frozen
from sluice_ops.model.wording import counted
from sluice_ops.planning.placement.pace import MOVES, Pace, pace, rest
from sluice_ops.snapshot.view import View

SLOW = 2.0
"""A change is slow after this many times its predicted time, and more than SLOW_SECONDS."""
SLOW_SECONDS = 30.0
STUCK_SECONDS = 120.0
"""A change is stuck after it has waited for the same thing for this long."""
LONG_SECONDS = 600.0
"""The same for slow steps: a reboot, a health check, a release that waits for batch tasks."""
LONG = frozenset({Step.REBOOT, Step.HEALTH, Step.RELEASE})


class Verdict(StrEnum):
    """The verdict on the pace of a change."""

    ON_TIME = "on time"
    SLOW = "slow"
    STUCK = "stuck"


class Progress(Frozen):
    """The progress of an active change."""

    prepared: int
    """Tiers whose next incarnation is ready, or has taken over."""
    handed_over: int
    moves: int
    """Tiers that the change hands over."""
    seconds: float
    """Seconds since the change began."""
    seconds_left: float
    """Predicted from earlier changes."""
    verdict: Verdict
    waits_for: str | None
    """The last sentence of the present step's journal."""
    waits_since: float | None

    def sentence(self, now: float) -> str:
        """Describe the progress in a few words, without what the change waits for."""
        handed = f"{self.handed_over} of {counted(self.moves, 'tier')} handed over, " if self.moves else ""
        left = f"{handed}about {self.seconds_left:.0f} s left" if self.moves or self.seconds_left else ""
        if self.verdict is Verdict.STUCK and self.waits_since is not None:
            verdict = (
                f"STUCK: waiting for the same thing for {now - self.waits_since:.0f} s; "
                "to undo the change: sluice abort"
            )
        elif self.verdict is Verdict.SLOW:
            verdict = f"slow: {self.seconds:.0f} s so far"
        else:
            verdict = ""
        return "; ".join(part for part in (left, verdict) if part)


def progress(view: View, identity: ChangeId, now: float) -> Progress | None:
    """Return the progress of a change; None if the change has not begun."""
    change = view.changes.get(identity)
    if change is None or change.state is ChangeState.WAITING:
        return None
    moves = [move.tier for move in change.plan.handovers]
    in_place = [move for move in change.plan.moves if move.tier not in change.incarnations]
    handed = sum(
        tier in view.tiers and view.tiers[tier].owner.owner == change.incarnations.get(tier) for tier in moves
    )
    ready = sum(tier in view.tiers and _is_ready(view, change, tier) for tier in moves)
    waiting = next((seen for seen in view.operations.values() if seen.operation.change == identity), None)
    since = None if waiting is None else waiting.last_at or waiting.operation.posted_at
    step = None if waiting is None else waiting.operation
    learnt_pace = pace(view.changes.values())
    return Progress(
        prepared=ready,
        handed_over=handed,
        moves=len(moves),
        seconds=now - change.started_at,
        seconds_left=learnt_pace.seconds(
            len(moves) - ready,
            len(moves) - handed,
            sum(move.released > 0 for move in in_place),
            sum(move.joining > 0 for move in in_place),
        )
        + _rest(learnt_pace, change, step, now),
        verdict=_verdict(
            change, since, now, long=step is not None and (step.step in LONG or _batch_tasks_run(view))
        ),
        waits_for=None if waiting is None else waiting.last,
        waits_since=since,
    )


def _is_ready(view: View, change: ChangeRecord, tier: TierName) -> bool:
    seen, number = view.tiers[tier], change.incarnations.get(tier)
    if number is None:
        return False
    report = seen.reports.get(Incarnation(number))
    return seen.owner.owner == number or (report is not None and report.state in {State.READY, State.RUNNING})


def _rest(learnt_pace: Pace, change: ChangeRecord, step: Operation | None, now: float) -> float:
    """Return the predicted seconds that are left besides the moves."""
    if change.state is not ChangeState.ACTIVE or (change.spec.kind == UPGRADE and not change.plan.moves):
        return 0.0
    so_far = now - step.posted_at if step is not None and step.step not in {*MOVES, Step.PREFLIGHT} else 0.0
    return max(0.0, learnt_pace.rest.get(change.spec.kind, 0.0) - rest(change) - so_far)


def _batch_tasks_run(view: View) -> bool:
    """Tell whether batch tasks still run in slots that were taken back."""
    return any(
        set(host.observed.batch) - set(host.assignment.batch)
        for host in view.hosts.values()
        if host.observed is not None
    )


def _verdict(change: ChangeRecord, since: float | None, now: float, *, long: bool) -> Verdict:
    if since is not None and now - since > (LONG_SECONDS if long else STUCK_SECONDS):
        return Verdict.STUCK
    if now - change.started_at > max(SLOW_SECONDS, SLOW * change.plan.predicted_seconds) and not long:
        return Verdict.SLOW
    return Verdict.ON_TIME
