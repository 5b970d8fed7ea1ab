"""When a query that has failed is begun again in place, and when its driver gives up and leaves it to the controller. Pure."""

from dataclasses import dataclass, field


@dataclass
class Restarts:
    """Counts failures within a sliding time; each waits twice as long as the one before."""

    limit: int
    """Failures within `seconds` that are borne."""
    seconds: float
    first_wait: float
    _failures: list[float] = field(default_factory=list)
    _due: float | None = None

    def failed(self, now: float) -> bool:
        """Take note of a failure; return whether to begin again."""
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
        """Return for how long the restart has been due; negative before."""
        return -1.0 if self._due is None else now - self._due

    def put_off(self, now: float, seconds: float) -> None:
        """Begin again so much later: what it takes is away, which is no failure of the query."""
        self._due = now + seconds

    def begun(self) -> None:
        """Take note that it was begun again."""
        self._due = None
