"""A game day: the fault that was injected, and how each promise came out."""

from sluice_ops.model.ids import HostName, Incarnation, UnitId
from sluice_ops.model.resources import Frozen


class UnitBefore(Frozen):
    """A unit before the fault, as its agent reported it."""

    pid: int | None
    restarts: int


class Promise(Frozen):
    """One promise of a game day, and how it came out."""

    what: str
    """What is promised, such as `records come out again`."""
    kept: bool
    limit_seconds: float | None = None
    """Within how many seconds; None: the promise has no time."""
    seconds: float | None = None
    """How long it took; None: it did not happen, or the promise has no time."""
    but: str = ""
    """What happened instead; empty: the promise was kept, or took too long."""

    @property
    def sentence(self) -> str:
        """The promise with its measured time and its limit."""
        limit = "" if self.limit_seconds is None else f" (promised: within {self.limit_seconds:g} s)"
        if self.but:
            return f"broken: {self.what}{limit}; but {self.but}"
        seconds = "" if self.seconds is None else f" after {self.seconds:.1f} s"
        return f"{'kept' if self.kept else 'broken'}: {self.what}{seconds}{limit}"


class GameDayReceipt(Frozen):
    """What a fault hit, and the promises; in the receipts of its change."""

    fault: str
    host: HostName
    unit: UnitId | None
    """The unit that is hit; None: the agent."""
    incarnation: Incarnation
    """The tier's owner before the fault."""
    units: dict[UnitId, UnitBefore]
    """What is to continue or to be started again: the worker, or the units of the agent's host."""
    promises: tuple[Promise, ...] = ()
    gap_seconds: float | None = None
    """The largest gap in the tier's output after the fault; None: not measured."""
