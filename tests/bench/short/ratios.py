"""The ratios of a comparison: Sluice's figure divided by Flink's. Pure."""

from collections.abc import Mapping
from typing import Any

LATENCY_RATE = "1000"
"""The rate whose latencies the ratios use."""
PROCESSOR_RATES = ("5000", "1000")
"""The rates whose processor time a ratio uses: the first one that both systems sustain."""
Figures = Mapping[str, Any]
"""The figures of one system with one workload."""


def ratios(workloads: Mapping[str, Mapping[str, Figures]]) -> dict[str, dict[str, float | int | None]]:
    """Return the ratios of each workload; None for a figure that a system does not have."""
    return {name: _ratios(sides["sluice"], sides["flink"]) for name, sides in workloads.items()}


def _ratios(ours: Figures, theirs: Figures) -> dict[str, float | int | None]:
    rate = processor_rate(ours, theirs)
    return {
        "rate": _ratio(ours["rate"]["highest"], theirs["rate"]["highest"]),
        "processor": None if rate is None else _ratio(_processor(ours, rate), _processor(theirs, rate)),
        **{share: _ratio(_latency(ours, share), _latency(theirs, share)) for share in ("p50", "p99")},
        "processor_at": None if rate is None else int(rate),
        "latency_at": int(LATENCY_RATE),
    }


def processor_rate(ours: Figures, theirs: Figures) -> str | None:
    """Return the rate at which the processor time is compared; None if one system sustains none."""
    for rate in PROCESSOR_RATES:
        if all(_milliseconds(figures, rate) is not None for figures in (ours, theirs)):
            return rate
    return None


def _processor(figures: Figures, rate: str) -> float:
    return float(figures["latency"][rate]["processor_seconds_per_million"])


def _milliseconds(figures: Figures, rate: str) -> Mapping[str, float] | None:
    """Return the latencies at a rate; None if the system does not sustain the rate, or failed."""
    found: Mapping[str, float] | None = figures["latency"].get(rate, {}).get("milliseconds")
    return found


def _latency(figures: Figures, share: str) -> float | None:
    milliseconds = _milliseconds(figures, LATENCY_RATE)
    return None if milliseconds is None else float(milliseconds[share])


def _ratio(ours: float | None, theirs: float | None) -> float | None:
    return None if ours is None or not theirs else round(ours / theirs, 3)
