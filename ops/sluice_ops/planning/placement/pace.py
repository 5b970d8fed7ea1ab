"""How long a change takes here: as long as the last ones did; before there were any, as long as was measured once. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median

from sluice_ops.model.change import START, STOP, UPGRADE, ChangeKind, ChangeRecord, ChangeState, Step
from sluice_ops.model.incarnation import TRIAL_SECONDS, IncarnationSpec, Timed

LAST = 10
"""So many changes are asked for their times, so that a prediction follows a site that grows."""
MOVES = frozenset({Step.PREPARE, Step.CUT})
"""The steps that take as long as there are moves."""


@dataclass(frozen=True)
class Pace:
    """Times of one move; what it begins with was measured on two cores that serve 500 records/s, an idle machine is quicker."""

    prepare: float = 55.0
    """Starting and warming one incarnation, one after the other. Unit: seconds."""
    cut: float = 15.0
    """One hand-over, from the decision to the confirmation. Unit: seconds."""
    gap: float = 0.5
    """The widest gap that a change leaves in a tier's output. Unit: seconds."""
    let_go: float = 3.0
    """Until the workers that a tier lets go have done their last tasks. Unit: seconds."""
    begun_again: float = 2.0
    """For so long a realtime tier puts nothing out that begins again on fewer workers. Unit: seconds."""
    rest: Mapping[ChangeKind, float] = field(default_factory=lambda: {UPGRADE: TRIAL_SECONDS})
    """What a change of each kind takes besides: a trial, a host that boots, workers that finish their tasks. Unit: seconds.
    Of a kind that moves nothing it is all that there is; of one that was never carried out nothing is known."""
    abort: float | None = None
    """Until all runs again that a change was about which was aborted; None: none has been yet. Unit: seconds."""

    def seconds(self, to_prepare: int, to_hand_over: int, to_let_go: int = 0) -> float:
        """Return how long so many of each take."""
        return self.prepare * to_prepare + self.cut * to_hand_over + self.let_go * to_let_go

    def unknown(self, kind: ChangeKind, what: str = "how long it takes") -> str:
        """Say that there is nothing yet to tell `what` by; the empty text where there is."""
        return "" if kind in self.rest else f"{what}, for no {kind} has been timed here yet"


def pace(changes: Iterable[ChangeRecord], incarnations: Iterable[IncarnationSpec] = ()) -> Pace:
    """Learn it from what has been done; how long starts and stops take, the incarnations tell."""
    known = sorted(changes, key=lambda change: change.started_at)
    ended = [change for change in known if change.state is ChangeState.DONE]
    rest, abort = {**Pace().rest, **_rests(ended), **_medians(incarnations)}, _abort(known)
    done = [
        change
        for change in ended
        if change.plan.moves and change.plan.hand_overs == change.plan.moves and {*change.took} >= MOVES
    ][-LAST:]
    if not done:
        return Pace(rest=rest, abort=abort)
    gaps = [gap for change in done if (gap := widest_gap(change)) is not None]
    return Pace(
        prepare=median(change.took[Step.PREPARE] / len(change.plan.moves) for change in done),
        cut=median(change.took[Step.CUT] / len(change.plan.moves) for change in done),
        gap=median(gaps) if gaps else Pace.gap,
        rest=rest,
        abort=abort,
    )


def rest(change: ChangeRecord) -> float:
    """Return what a change has taken so far besides its moves."""
    return sum(seconds for step, seconds in change.took.items() if step not in {*MOVES, Step.PREFLIGHT})


def _rests(ended: list[ChangeRecord]) -> dict[ChangeKind, float]:
    """Return the median of each kind; an upgrade that has moved nothing had no trial."""
    by_kind: dict[ChangeKind, list[float]] = {}
    for change in ended:
        if change.plan.moves or change.spec.kind != UPGRADE:
            by_kind.setdefault(change.spec.kind, []).append(rest(change))
    return {kind: median(seconds[-LAST:]) for kind, seconds in by_kind.items()}


def asked(incarnations: Iterable[IncarnationSpec]) -> Iterator[tuple[ChangeKind, Timed, IncarnationSpec]]:
    """Yield the starts and stops that somebody asked for."""
    for spec in incarnations:
        for kind, timed in ((START, spec.start), (STOP, spec.stop)):
            if timed is not None:
                yield kind, timed, spec


def _medians(incarnations: Iterable[IncarnationSpec]) -> dict[ChangeKind, float]:
    """Return the medians of the starts and stops that somebody asked for and that are through."""
    by_kind: dict[ChangeKind, list[tuple[float, float]]] = {}
    for kind, timed, _ in asked(incarnations):
        if timed.seconds is not None:
            by_kind.setdefault(kind, []).append((timed.at, timed.seconds))
    return {kind: median(seconds for _, seconds in sorted(found)[-LAST:]) for kind, found in by_kind.items()}


def _abort(changes: Iterable[ChangeRecord]) -> float | None:
    """Return the median of the aborts; of a change that never began there was nothing to undo."""
    aborted = (change.took for change in changes if change.state is ChangeState.ABORTED)
    seconds = [took[Step.ABORT] for took in aborted if {Step.PREFLIGHT, Step.ABORT} <= took.keys()]
    return median(seconds[-LAST:]) if seconds else None


def widest_gap(change: ChangeRecord) -> float | None:
    """Return the widest gap that a change has left in the output of a tier; None where nobody has told of one."""
    gaps = [
        found["gap_seconds"] for found in change.receipts.values() if found.get("gap_seconds") is not None
    ]
    return max(gaps, default=None)
