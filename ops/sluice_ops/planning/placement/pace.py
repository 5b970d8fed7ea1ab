"""Predicted times of changes: the median of the last changes, or defaults from one measurement.

Pure.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median

from sluice_ops.model.change import START, STOP, UPGRADE, ChangeKind, ChangeRecord, ChangeState, Step
from sluice_ops.model.incarnation import TRIAL_SECONDS, IncarnationSpec, Timed

LAST = 10
"""The number of last changes that a prediction uses, so that predictions follow a site
that grows.
"""
MOVES = frozenset({Step.PREPARE, Step.CUT})
"""The steps whose time grows with the number of moves."""


@dataclass(frozen=True)
class Pace:
    """Times of one move.

    The defaults were measured on two cores that served 500 records/s. An idle machine is faster.
    """

    prepare: float = 55.0
    """Start and warm-up of one incarnation.

    Incarnations start one after the other. Unit: seconds.
    """
    cut: float = 15.0
    """One handover, from the decision to the confirmation. Unit: seconds."""
    gap: float = 0.5
    """The largest gap that a change leaves in a tier's output. Unit: seconds."""
    release_in_place: float = 3.0
    """Until workers that a tier releases in place have finished their last tasks. Unit: seconds."""
    join_in_place: float = 8.0
    """Until a worker that a tier gets in place has its first task. Unit: seconds."""
    wake_spare: float = 2.0
    """Until a spare that is woken has its first task. Unit: seconds."""
    realtime_restart_gap: float = 2.0
    """The gap of a realtime tier that restarts its query on fewer workers. Unit: seconds."""
    realtime_join_gap: float = 0.6
    """The gap of a realtime tier whose query is planned anew on more workers.

    Measured with `test_workers_join`. Unit: seconds.
    """
    rest: Mapping[ChangeKind, float] = field(default_factory=lambda: {UPGRADE: TRIAL_SECONDS})
    """By kind: the time of a change besides its moves, such as a trial or a reboot. Unit: seconds.

    For a kind that moves nothing, this is the whole time. A kind that was never timed here is
    missing.
    """
    abort: float | None = None
    """How long an abort takes until all tiers of the change run again. Unit: seconds.

    None: no abort has been timed here yet.
    """

    def seconds(self, to_prepare: int, to_hand_over: int, to_release: int = 0, to_grow: int = 0) -> float:
        """Return the time of so many prepares and handovers, and of tiers that release or get
        workers in place.
        """
        return (
            self.prepare * to_prepare
            + self.cut * to_hand_over
            + self.release_in_place * to_release
            + self.join_in_place * to_grow
        )

    def unknown(self, kind: ChangeKind, part: str = "how long it takes") -> str:
        """Return that a part of the time is unknown; the empty text if this kind was timed here."""
        return "" if kind in self.rest else f"{part}, because no {kind} has been timed here yet"


def pace(changes: Iterable[ChangeRecord], incarnations: Iterable[IncarnationSpec] = ()) -> Pace:
    """Return the medians of past changes. The incarnations give the times of starts and stops."""
    known = sorted(changes, key=lambda change: change.started_at)
    ended = [change for change in known if change.state is ChangeState.DONE]
    joined = [
        change.took[Step.CUT] / len(change.plan.moves)
        for change in ended
        if Step.CUT in change.took
        and change.plan.moves
        and all(move.joining and not move.released for move in change.plan.moves)
    ][-LAST:]
    join = median(joined) if joined else Pace.join_in_place
    rest, abort = {**Pace().rest, **_rests(ended), **_medians(incarnations)}, _abort(known)
    done = [
        change
        for change in ended
        if change.plan.moves and change.plan.handovers == change.plan.moves and {*change.took} >= MOVES
    ][-LAST:]
    if not done:
        return Pace(join_in_place=join, rest=rest, abort=abort)
    gaps = [gap for change in done if (gap := widest_gap(change)) is not None]
    return Pace(
        prepare=median(change.took[Step.PREPARE] / len(change.plan.moves) for change in done),
        cut=median(change.took[Step.CUT] / len(change.plan.moves) for change in done),
        gap=median(gaps) if gaps else Pace.gap,
        join_in_place=join,
        rest=rest,
        abort=abort,
    )


def rest(change: ChangeRecord) -> float:
    """Return the time of a change so far besides preflight and moves. Unit: seconds."""
    return sum(seconds for step, seconds in change.took.items() if step not in {*MOVES, Step.PREFLIGHT})


def _rests(ended: list[ChangeRecord]) -> dict[ChangeKind, float]:
    """Return the median rest of each kind.

    Upgrades that moved nothing had no trial and are left out.
    """
    by_kind: dict[ChangeKind, list[float]] = {}
    for change in ended:
        if change.plan.moves or change.spec.kind != UPGRADE:
            by_kind.setdefault(change.spec.kind, []).append(rest(change))
    return {kind: median(seconds[-LAST:]) for kind, seconds in by_kind.items()}


def requested_starts_and_stops(
    incarnations: Iterable[IncarnationSpec],
) -> Iterator[tuple[ChangeKind, Timed, IncarnationSpec]]:
    """Yield the starts and stops that a person or a DAG requested."""
    for spec in incarnations:
        for kind, timed in ((START, spec.start), (STOP, spec.stop)):
            if timed is not None:
                yield kind, timed, spec


def _medians(incarnations: Iterable[IncarnationSpec]) -> dict[ChangeKind, float]:
    """Return the median times of completed requested starts and stops."""
    by_kind: dict[ChangeKind, list[tuple[float, float]]] = {}
    for kind, timed, _ in requested_starts_and_stops(incarnations):
        if timed.seconds is not None:
            by_kind.setdefault(kind, []).append((timed.at, timed.seconds))
    return {kind: median(seconds for _, seconds in sorted(times)[-LAST:]) for kind, times in by_kind.items()}


def _abort(changes: Iterable[ChangeRecord]) -> float | None:
    """Return the median time of aborts of changes that had begun."""
    aborted = (change.took for change in changes if change.state is ChangeState.ABORTED)
    seconds = [took[Step.ABORT] for took in aborted if {Step.PREFLIGHT, Step.ABORT} <= took.keys()]
    return median(seconds[-LAST:]) if seconds else None


def widest_gap(change: ChangeRecord) -> float | None:
    """Return the largest gap that a change left in a tier's output; None if no gap was reported."""
    gaps = [
        receipt["gap_seconds"]
        for receipt in change.receipts.values()
        if receipt.get("gap_seconds") is not None
    ]
    return max(gaps, default=None)
