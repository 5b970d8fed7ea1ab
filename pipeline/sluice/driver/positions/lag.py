"""How far a tier is behind in each of its inputs, and what to say of it when it is too far.

Pure: `progress` brings what it has measured. Where a tier is, its output tells by halves (a record that was left out does not show, nor one
of a quiet partition among many others), so that it seems further behind than it is. When it seems far behind, it is asked what it has read.
"""

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sluice.api.declarations import Stream
from sluice.kafka.reader import topic_and_number
from sluice_ops.model.backpressure import Lag, Pressure, is_over

RENEW_SECONDS = 60.0
"""Between two times that the figures of a pressure are said anew: they go through ZooKeeper."""
WINDOW = 31
"""Looks over which rates are taken: a minute, for a sink commits seldom and much."""
UNKNOWN_SECONDS = float(1 << 62)
"""As much as can be said: JSON has no word for more."""
HISTORY = 1_000
"""Looks over which it is known what had come by then: half an hour."""
UNEVEN = 2.0
"""A partition is named when so many times its equal part of all that waits is in it,"""
MOST = 0.8
"""or so much of all: of two partitions neither can have twice its part without having all."""
HOT = 0.2
"""A key is named when it is so much of what waits, as samples of its partitions tell."""

Keys = Mapping[int, Sequence[bytes | None]]
"""Those of some records that wait, by partition."""


@dataclass(frozen=True)
class Look:
    """What was measured at one moment."""

    now: float
    """Monotonic clock."""
    at: float
    """Wall clock, for people."""
    ends: Mapping[str, int]
    """Of each partition of the inputs, by `stream/partition`."""
    positions: Mapping[str, int]
    waits: Mapping[str, float]
    """For how long the oldest record of each partition has waited that is not done. Unit: seconds."""


class Behind:
    """Remembers the last minute's looks, and whether the tier was behind too far."""

    def __init__(self, inputs: Sequence[Stream]) -> None:
        """Know nothing yet."""
        self._inputs = inputs
        self._looks: deque[Look] = deque(maxlen=WINDOW)
        self._came: deque[tuple[float, int]] = deque(maxlen=HISTORY)
        """What all inputs held at each look, in all."""
        self._over: dict[str, tuple[float, float]] = {}
        """Since when it is behind too far, by stream, on both clocks."""
        self._said = 0.0
        self.lags: dict[str, Lag] = {}
        self.pressure: Pressure | None = None

    def forget(self) -> None:
        """Know nothing again: another owns the tier, or it does not run."""
        self._looks.clear()
        self._came.clear()
        self._over, self.lags, self.pressure = {}, {}, None

    def look(
        self,
        look: Look,
        read: Callable[[], int | None],
        keys: Callable[[str], Keys],
        *,
        metered: bool = False,
    ) -> None:
        """Take a look. Who lets in by measure was held back: it is behind because of that, and presses nobody.

        `read` returns the sum of the next offsets that the tier will read, as far as it knows; it is asked only when the tier seems far
        behind. `keys` returns those of some records that wait in a stream, and is asked only when it is behind too far.
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
        if not known or look.now - self._said >= RENEW_SECONDS:
            self._said = look.now
            self.pressure = self._pressure(look, worst, keys)

    def _most(self, now: float, read: int | None) -> Lag:
        """Return how far it may be behind at most by what it has read."""
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
    found = {
        topic_and_number(name): max(0, end - look.positions[name])
        for name, end in look.ends.items()
        if name in look.positions
    }
    return {partition: left for (topic, partition), left in found.items() if topic == stream}


def uneven(waits: Mapping[int, int]) -> str:
    """Name the partition in which far more waits than in the others."""
    total = sum(waits.values())
    if len(waits) < 2 or not total:  # noqa: PLR2004 — one has all of it
        return ""
    partition = max(waits, key=lambda each: (waits[each], -each))
    part = waits[partition] / total
    return (
        f"{part:.0%} of it is in partition {partition} of {len(waits)}"
        if part >= min(MOST, UNEVEN / len(waits))
        else ""
    )


def hot(waits: Mapping[int, int], keys: Keys) -> str:
    """Name the key that far too much of what waits has: each partition's sample counts by what waits there."""
    total = sum(waits.get(partition, 0) for partition, sample in keys.items() if sample)
    parts: dict[bytes, float] = {}
    for partition, sample in keys.items():
        for key, count in Counter(key for key in sample if key is not None).items():
            parts[key] = parts.get(key, 0.0) + waits.get(partition, 0) * count / len(sample)
    if not parts or not total:
        return ""
    key = max(parts, key=lambda each: (parts[each], each))
    part, looked = parts[key] / total, sum(map(len, keys.values()))
    return (
        f"key {key[:60].decode(errors='replace')!r} has {part:.0%} of it, as {looked} records tell"
        if part >= HOT
        else ""
    )


def _lag(look: Look, stream: str) -> Lag:
    longest = max(
        (wait for name, wait in look.waits.items() if topic_and_number(name)[0] == stream), default=0.0
    )
    return Lag(records=sum(waiting(look, stream).values()), seconds=round(max(0.0, longest), 1))
