"""How far a tier lags in each of its inputs, and the report of a lag over the limit. Pure.

`progress_report` brings the measurements. The output shows a tier's position only in part: it lacks
records that were left out, and the newest records of quiet partitions may not be among the last
ones. So the tier seems to lag more than it does. If it seems to lag far, the engine is asked what
it has read.
"""

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sluice.api.declarations import Stream
from sluice.kafka.reader import topic_and_number
from sluice_ops.model.backpressure import Lag, Pressure, is_over

RENEW_SECONDS = 60.0
"""Time between two updates of a reported pressure, which go through ZooKeeper."""
WINDOW = 31
"""Looks for the rates, which is a minute: a sink commits seldom, and much at once."""
UNKNOWN_SECONDS = float(1 << 62)
"""Stands for an unknown, unlimited time; JSON has no infinity."""
HISTORY = 1_000
"""Looks for which the sum of the inputs is remembered: half an hour."""
UNEVEN = 2.0
"""A partition is named if it has so many times its equal part of the waiting records,"""
MOST = 0.8
"""or this part of all. Of two partitions, neither could have more than twice its part."""
HOT = 0.2
"""A key is named if it has this part of the waiting records, as samples of its partitions show."""

Keys = Mapping[int, Sequence[bytes | None]]
"""Keys of some waiting records, by partition."""


@dataclass(frozen=True)
class Look:
    """The measurements of one moment."""

    now: float
    """Monotonic clock."""
    at: float
    """Wall clock, for people."""
    ends: Mapping[str, int]
    """The ends of the input partitions, by `stream/partition`."""
    positions: Mapping[str, int]
    waits: Mapping[str, float]
    """How long the oldest waiting record of each partition has waited. Unit: seconds."""


class LagHistory:
    """Remembers the looks of the last minute, and whether the lag was over its limit."""

    def __init__(self, inputs: Sequence[Stream]) -> None:
        """Begin without looks."""
        self._inputs = inputs
        self._looks: deque[Look] = deque(maxlen=WINDOW)
        self._came: deque[tuple[float, int]] = deque(maxlen=HISTORY)
        """The sum of the ends of all inputs at each look."""
        self._over: dict[str, tuple[float, float]] = {}
        """Since when each stream's lag is over the limit, on both clocks."""
        self._reported_at = 0.0
        self.lags: dict[str, Lag] = {}
        self.pressure: Pressure | None = None

    def forget(self) -> None:
        """Start again: another incarnation owns the tier, or it does not run."""
        self._looks.clear()
        self._came.clear()
        self._over, self.lags, self.pressure = {}, {}, None

    def update(
        self,
        look: Look,
        read: Callable[[], int | None],
        keys: Callable[[str], Keys],
        *,
        metered: bool = False,
    ) -> None:
        """Take a look, and update lags and pressure.

        `metered` tells that the tier itself was throttled. Its lag then throttles no other tier.

        `read` returns the sum of the next offsets that the tier will read, or None if unknown; it
        is asked only if the lag seems over the limit. `keys` returns keys of some waiting records
        of a stream; it is asked only if the lag is over the limit.
        """
        self._looks.append(look)
        self._came.append((look.now, sum(look.ends.values())))
        self.lags = {stream.name: _lag(look, stream.name) for stream in self._inputs}
        if any(is_over(self.lags[stream.name], stream.watermarks, before=True) for stream in self._inputs):
            most = self._most(look.now, read())
            self.lags = {
                name: Lag(records=min(lag.records, most.records), seconds=min(lag.seconds, most.seconds))
                for name, lag in self.lags.items()
            }
        for stream in self._inputs:
            lag, before = self.lags[stream.name], stream.name in self._over
            if is_over(lag, stream.watermarks, before=before) and not metered:
                self._over.setdefault(stream.name, (look.now, look.at))
            else:
                self._over.pop(stream.name, None)
        if not self._over:
            self.pressure = None
            return
        worst = min(self._over, key=lambda name: (self._over[name], name))
        known = self.pressure is not None and self.pressure.stream == worst
        if not known or look.now - self._reported_at >= RENEW_SECONDS:
            self._reported_at = look.now
            self.pressure = self._pressure(look, worst, keys)

    def _most(self, now: float, read: int | None) -> Lag:
        """Return the largest lag that is possible with the records that the tier has read."""
        if read is None:
            return Lag(records=1 << 62, seconds=UNKNOWN_SECONDS)
        then = max((at for at, came in self._came if came <= read), default=None)
        return Lag(
            records=max(0, self._came[-1][1] - read),
            seconds=UNKNOWN_SECONDS if then is None else round(now - then, 1),
        )

    def _pressure(self, look: Look, stream: str, keys: Callable[[str], Keys]) -> Pressure:
        first = self._looks[0]
        seconds = look.now - first.now
        came, done = (
            sum(
                now - then.get(name, now) for name, now in last.items() if topic_and_number(name)[0] == stream
            )
            for last, then in ((look.ends, first.ends), (look.positions, first.positions))
        )
        waits = waiting(look, stream)
        return Pressure(
            stream=stream,
            lag=self.lags[stream],
            since=self._over[stream][1],
            rate_in=round(came / seconds, 1) if seconds > 0 else None,
            rate_done=round(done / seconds, 1) if seconds > 0 else None,
            hot=", ".join(filter(None, (uneven(waits), hot(waits, keys(stream))))),
        )


def waiting(look: Look, stream: str) -> dict[int, int]:
    """Return how many records wait in each partition of a stream."""
    waits = {
        topic_and_number(name): max(0, end - look.positions[name])
        for name, end in look.ends.items()
        if name in look.positions
    }
    return {partition: count for (topic, partition), count in waits.items() if topic == stream}


def uneven(waits: Mapping[int, int]) -> str:
    """Return a sentence that names the partition with far more waiting records than the others;
    empty if none.
    """
    total = sum(waits.values())
    if len(waits) < 2 or not total:  # noqa: PLR2004 — a single partition has all of them
        return ""
    partition = max(waits, key=lambda number: (waits[number], -number))
    part = waits[partition] / total
    return (
        f"{part:.0%} of it is in partition {partition} of {len(waits)}"
        if part >= min(MOST, UNEVEN / len(waits))
        else ""
    )


def hot(waits: Mapping[int, int], keys: Keys) -> str:
    """Return a sentence that names the key of very many waiting records; empty if none.

    The sample of each partition counts in proportion to the records that wait there.
    """
    total = sum(waits.get(partition, 0) for partition, sample in keys.items() if sample)
    parts: dict[bytes, float] = {}
    for partition, sample in keys.items():
        for key, count in Counter(key for key in sample if key is not None).items():
            parts[key] = parts.get(key, 0.0) + waits.get(partition, 0) * count / len(sample)
    if not parts or not total:
        return ""
    key = max(parts, key=lambda candidate: (parts[candidate], candidate))
    part, sampled = parts[key] / total, sum(map(len, keys.values()))
    return (
        f"key {key[:60].decode(errors='replace')!r} has {part:.0%} of it, as {sampled} records tell"
        if part >= HOT
        else ""
    )


def _lag(look: Look, stream: str) -> Lag:
    longest = max(
        (wait for name, wait in look.waits.items() if topic_and_number(name)[0] == stream), default=0.0
    )
    return Lag(records=sum(waiting(look, stream).values()), seconds=round(max(0.0, longest), 1))
