"""The key `repair` of the site file: whether and when the controller repairs drift by itself."""

from datetime import UTC, datetime, timedelta

from pydantic import Field

from sluice_ops.model.repair import REPAIR_SECONDS, REPAIRS_PER_HOUR
from sluice_ops.model.resources import Frozen
from sluice_ops.site.shift_config import Schedule


class WindowConfig(Schedule):
    """Some hours, again and again, in which repairs may begin."""

    hours: float = Field(gt=0, le=24)
    """How long the window is open after each time of the schedule. Unit: hours."""

    def opens(self, now: float) -> float | None:
        """Return when the window opens next, in epoch seconds; None if it is open."""
        moment = datetime.fromtimestamp(now, UTC)
        latest = self.last(moment + timedelta(microseconds=1))  # `last` leaves out the moment itself
        if moment < latest + timedelta(hours=self.hours):
            return None
        return self.next(moment).timestamp()


class RepairConfig(Frozen):
    """How the controller repairs drift by itself, one tier at a time."""

    after: float = Field(default=REPAIR_SECONDS, ge=30)
    """How long a tier must have drifted, so that short disturbances move nothing. Unit: seconds."""
    window: WindowConfig | None = None
    """When repairs may begin: `{schedule: "0 1 * * *", hours: 4, timezone: Europe/Bucharest}`.

    A starved tier does not wait for the window. Default: at any time.
    """
    changes_per_hour: int = Field(default=REPAIRS_PER_HOUR, ge=1, le=30)
    """The most repairs that begin within an hour."""


def repair_of(value: object) -> object:
    """Read `on` and `off`, which are True and False in YAML."""
    if isinstance(value, bool):
        return RepairConfig() if value else None
    if value is None or isinstance(value, dict | RepairConfig):
        return value
    message = f"{value!r} is neither on nor off: write on, off, or keys such as {{after: 1800}}"
    raise ValueError(message)
