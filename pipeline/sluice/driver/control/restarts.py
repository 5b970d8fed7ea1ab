"""When a failed query restarts in place, and when its driver gives up and leaves it to the
controller. Pure.
"""

from dataclasses import dataclass, field


@dataclass
class Restarts:
    """Counts failures within a sliding time. Each restart waits twice as long as the one before."""

    limit: int
    """The number of failures within `seconds` after which a query still restarts."""
    seconds: float
    first_wait: float
    _failures: list[float] = field(default_factory=list)
    _due: float | None = None

    def failed(self, now: float) -> bool:
        """Note a failure; return whether to restart."""
        self._failures = [at for at in self._failures if now - at < self.seconds]
        if len(self._failures) >= self.limit:
            return False
        self._due = now + self.first_wait * 2 ** len(self._failures)
        self._failures.append(now)
        return True

    @property
    def waiting(self) -> bool:
        """Whether a restart is due, now or later."""
        return self._due is not None

    def overdue(self, now: float) -> float:
        """Return how long the restart has been due; negative if it is not due. Unit: seconds."""
        return -1.0 if self._due is None else now - self._due

    def put_off(self, now: float, seconds: float) -> None:
        """Restart this much later, without counting a failure: a service that the query needs does
        not answer.
        """
        self._due = now + seconds

    def begun(self) -> None:
        """Note that the query was restarted."""
        self._due = None
