"""How long a change takes here: as long as the last ones did; before there were any, as long as was measured once. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from ops.model.operation import ChangeRecord, ChangeState, Step

LAST = 10
"""So many changes are asked for their times, so that a prediction follows a site that grows."""


@dataclass(frozen=True)
class Pace:
    """Times of one move; what it begins with was measured on two cores that serve 500 records/s, an idle machine is quicker."""

    prepare: float = 55.0
    """Starting and warming one incarnation, one after the other. Unit: seconds."""
    cut: float = 15.0
    """One hand-over, from the decision to the confirmation. Unit: seconds."""
    gap: float = 0.5
    """The widest gap that a change leaves in a tier's output. Unit: seconds."""

    def seconds(self, to_prepare: int, to_hand_over: int) -> float:
        """Return how long so many of each take."""
        return self.prepare * to_prepare + self.cut * to_hand_over


def pace(changes: Iterable[ChangeRecord]) -> Pace:
    """Learn it from what has been done."""
    done = [
        change
        for change in changes
        if change.state is ChangeState.DONE and change.plan.moves and {Step.PREPARE, Step.CUT} <= {*change.took}
    ]
    done = sorted(done, key=lambda change: change.started_at)[-LAST:]
    if not done:
        return Pace()
    gaps = [gap for change in done if (gap := widest_gap(change)) is not None]
    return Pace(
        prepare=median(change.took[Step.PREPARE] / len(change.plan.moves) for change in done),
        cut=median(change.took[Step.CUT] / len(change.plan.moves) for change in done),
        gap=median(gaps) if gaps else Pace.gap,
    )


def widest_gap(change: ChangeRecord) -> float | None:
    """Return the widest gap that a change has left in the output of a tier; None where nobody has told of one."""
    gaps = [found["gap_seconds"] for found in change.receipts.values() if found.get("gap_seconds") is not None]
    return max(gaps, default=None)
