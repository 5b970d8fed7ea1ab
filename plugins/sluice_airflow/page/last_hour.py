"""The figures of the last hour for the sparklines, in the API server's memory. Pure."""

from collections import deque
from collections.abc import Collection
from typing import Any

STEP_SECONDS = 30.0
POINTS = 120
"""An hour."""
FIGURES = ("rate_in", "lag", "latency_ms")


class LastHour:
    """A point every half minute for each tier and stream; the oldest points are dropped."""

    def __init__(self) -> None:
        """Begin without a point."""
        self._times: deque[float] = deque(maxlen=POINTS)
        self._points: deque[dict[str, dict[str, Any]]] = deque(maxlen=POINTS)
        self._rates: deque[dict[str, float]] = deque(maxlen=POINTS)

    def add(self, now: float, tiers: Collection[dict[str, Any]]) -> None:
        """Keep the tiers' present figures, unless the last point is younger than a step."""
        if self._times and now - self._times[-1] < STEP_SECONDS:
            return
        self._times.append(now)
        self._points.append({tier["name"]: {name: tier[name] for name in FIGURES} for tier in tiers})
        self._rates.append({name: rate for tier in tiers for name, rate in _rates(tier).items()})

    def series(self) -> dict[str, Any]:
        """Return the times, and for each tier of the newest point each figure at these times.

        So also the rate of each stream: `STREAM TIER` as this tier reads it, `STREAM` as it is
        written. A figure is None where there was none.
        """
        newest = self._points[-1] if self._points else {}
        streams = self._rates[-1] if self._rates else {}
        return {
            "times": [round(at) for at in self._times],
            "tiers": {
                tier: {name: [point.get(tier, {}).get(name) for point in self._points] for name in FIGURES}
                for tier in newest
            },
            "streams": {name: [point.get(name) for point in self._rates] for name in streams},
        }


def _rates(tier: dict[str, Any]) -> dict[str, float]:
    """Return the rates of a tier's streams by their names in the series."""
    read = {f"{stream} {tier['name']}": rate for stream, rate in tier["input_rates"].items()}
    return {**read, **tier["output_rates"]}
