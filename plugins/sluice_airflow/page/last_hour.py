"""The figures of the last hour for the sparklines, in the API server's memory. Pure."""

from collections import deque
from collections.abc import Iterable
from typing import Any

STEP_SECONDS = 30.0
POINTS = 120
"""An hour."""
FIGURES = ("rate_in", "lag", "latency_ms")


class LastHour:
    """A point every half minute for each tier; the oldest points are dropped."""

    def __init__(self) -> None:
        """Begin without a point."""
        self._times: deque[float] = deque(maxlen=POINTS)
        self._points: deque[dict[str, dict[str, Any]]] = deque(maxlen=POINTS)

    def add(self, now: float, tiers: Iterable[dict[str, Any]]) -> None:
        """Keep the tiers' present figures, unless the last point is younger than a step."""
        if self._times and now - self._times[-1] < STEP_SECONDS:
            return
        self._times.append(now)
        self._points.append({tier["name"]: {name: tier[name] for name in FIGURES} for tier in tiers})

    def series(self) -> dict[str, Any]:
        """Return the times, and for each tier of the newest point each figure at these times.

        A figure is None where the tier had none.
        """
        newest = self._points[-1] if self._points else {}
        return {
            "times": [round(at) for at in self._times],
            "tiers": {
                tier: {name: [point.get(tier, {}).get(name) for point in self._points] for name in FIGURES}
                for tier in newest
            },
        }
