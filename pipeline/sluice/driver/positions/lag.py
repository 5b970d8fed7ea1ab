"""How far a tier lags in each of its inputs, and the report of a lag over the limit. Pure.

`progress_report` brings the measurements. The output shows a tier's position only in part: it lacks
records that were left out, and the newest records of quiet partitions may not be among the last
ones. So the tier seems to lag more than it does. If it seems to lag far, the engine is asked what
it has read.
"""

import itertools
import math
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sluice.api.declarations import Stream
from sluice.kafka.reader import topic_and_number
from sluice_ops.model.admission import wanted_rate
from sluice_ops.model.backpressure import Expiry, Lag, Pressure, is_over

RENEW_SECONDS = 4.0
"""Time between two updates of reported figures, which go through ZooKeeper."""
HOT_SECONDS = 60.0
"""Time between two samples of the keys that wait."""
WINDOW = 16
"""Looks for the rates, which is half a minute: a sink commits seldom, and much at once."""
SOME_SECONDS = 10.0
"""Less time gives no rate."""
QUIET_SECONDS = 30.0
"""A lag that was over its limit has to stay below the low watermark as long as it was over the
limit, at most this long.

The controller lets more records in meanwhile. If the lag does not grow, the entry has no more.
"""
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


@dataclass
class Overrun:
    """A stream's lag that is over its limit."""

    since: float
    """Wall clock."""
    begun: float
    """The same on the monotonic clock."""
    above: float
    """When the lag was last above the low watermark. Monotonic clock."""
    capacity: float | None = None
    """How many records the tier processes each second while enough of them wait."""
    hot: str = ""
    """The partition or key with more than its part of the records."""
    sampled: float = -math.inf
    """When the keys were sampled. Monotonic clock."""


class LagHistory:
    """Remembers the looks of the last half minute, and whether the lag was over its limit."""

    def __init__(self, inputs: Sequence[Stream]) -> None:
        """Begin without looks."""
        self._inputs = inputs
        self._looks: deque[Look] = deque(maxlen=WINDOW)
        self._lags: deque[Mapping[str, Lag]] = deque(maxlen=WINDOW)
        """The lags at these looks."""
        self._came: deque[tuple[float, int]] = deque(maxlen=HISTORY)
        """The sum of the ends of all inputs at each look."""
        self._over: dict[str, Overrun] = {}
        self._reported_at = self._taken_at = 0.0
        self.lags: dict[str, Lag] = {}
        self.pressure: Pressure | None = None
        self.kept: Mapping[str, float] = {}
        """How long Kafka keeps a record of each input; an unlimited or unknown time is left out.
        Unit: seconds.
        """
        self.rate_taken: float | None = None
        """Records that a metered tier took in each second; None: not metered, or not known yet."""

    def forget(self) -> None:
        """Start again: another incarnation owns the tier, or it does not run."""
        self._looks.clear()
        self._lags.clear()
        self._came.clear()
        self._over, self.lags, self.pressure, self.rate_taken = {}, {}, None, None

    def update(
        self,
        look: Look,
        read: Callable[[], int | None],
        keys: Callable[[str], Keys],
        *,
        metered: bool = False,
    ) -> None:
        """Take a look, and update lags and pressure.

        With `metered` the tier is throttled, or catches up after it. Its lag then presses no other
        tier.

        `read` returns the sum of the next offsets that the tier will read, or None if unknown; it
        is asked only if the lag seems over the limit. `keys` returns keys of some waiting records
        of a stream; it is asked only if the lag is over the limit.
        """
        self._looks.append(look)
        self._came.append((look.now, sum(look.ends.values())))
        self._measure_taken(metered=metered)
        self.lags = {stream.name: _lag(look, stream.name) for stream in self._inputs}
        if any(is_over(self.lags[stream.name], stream.watermarks, before=True) for stream in self._inputs):
            most = self._most(look.now, read())
            self.lags = {
                name: Lag(records=min(lag.records, most.records), seconds=min(lag.seconds, most.seconds))
                for name, lag in self.lags.items()
            }
        self._lags.append(self.lags)
        for stream in self._inputs:
            if metered or not self._is_over(look, stream):
                self._over.pop(stream.name, None)
        if not self._over:
            self.pressure = None
            return
        known = self.pressure is not None and self.pressure.stream in self._over
        if not known or look.now - self._reported_at >= RENEW_SECONDS:
            self._reported_at = look.now
            over = (stream for stream in self._inputs if stream.name in self._over)
            self.pressure = min((self._pressure(look, stream, keys) for stream in over), key=_wanted_part)

    def _is_over(self, look: Look, stream: Stream) -> bool:
        """Tell whether a stream's lag is over its limit, and keep its `Overrun`."""
        lag, overrun = self.lags[stream.name], self._over.get(stream.name)
        if overrun is None and is_over(lag, stream.watermarks, before=False):
            overrun = self._over[stream.name] = Overrun(look.at, look.now, look.now)
        if overrun is None:
            return False
        if is_over(lag, stream.watermarks, before=True):
            overrun.above = look.now
        capacity = self._capacity(stream)
        overrun.capacity = overrun.capacity if capacity is None else capacity
        return look.now - overrun.above <= min(QUIET_SECONDS, overrun.above - overrun.begun)

    def _capacity(self, stream: Stream) -> float | None:
        """Return the rate of the times that began with a lag above the low watermark; None if they
        were too short.
        """
        seconds, done = 0.0, 0
        both = zip(self._looks, self._lags, strict=True)
        for (look, lags), (after, lags_after) in itertools.pairwise(both):
            lag, lag_after = lags[stream.name], lags_after[stream.name]
            if is_over(lag, stream.watermarks, before=True):
                seconds += after.now - look.now
                done += _growth(look.ends, after.ends, stream.name) - lag_after.records + lag.records
        return max(0, done) / seconds if seconds >= SOME_SECONDS else None

    def _most(self, now: float, read: int | None) -> Lag:
        """Return the largest lag that is possible with the records that the tier has read."""
        if read is None:
            return Lag(records=1 << 62, seconds=UNKNOWN_SECONDS)
        then = max((at for at, came in self._came if came <= read), default=None)
        return Lag(
            records=max(0, self._came[-1][1] - read),
            seconds=UNKNOWN_SECONDS if then is None else round(now - then, 1),
        )

    def _measure_taken(self, *, metered: bool) -> None:
        first, last = self._looks[0], self._looks[-1]
        if not metered:
            self.rate_taken = None
        elif last.now - first.now >= SOME_SECONDS and (
            self.rate_taken is None or last.now - self._taken_at >= RENEW_SECONDS
        ):
            self._taken_at = last.now
            taken = sum(_growth(first.positions, last.positions, stream.name) for stream in self._inputs)
            self.rate_taken = float(f"{taken / (last.now - first.now):.3g}")

    def _pressure(self, look: Look, stream: Stream, keys: Callable[[str], Keys]) -> Pressure:
        first, lag, overrun = self._looks[0], self.lags[stream.name], self._over[stream.name]
        seconds = look.now - first.now
        came = _growth(first.ends, look.ends, stream.name)
        # not the growth of the positions, which the output tells only in part
        done = came - lag.records + self._lags[0][stream.name].records
        rate_in, rate_done = (
            round(max(0, count) / seconds, 1) if seconds > 0 else None for count in (came, done)
        )
        capacity = rate_done if overrun.capacity is None else overrun.capacity
        if look.now - overrun.sampled >= HOT_SECONDS:
            overrun.sampled, waits = look.now, waiting(look, stream.name)
            overrun.hot = ", ".join(filter(None, (uneven(waits), hot(waits, keys(stream.name)))))
        return Pressure(
            stream=stream.name,
            lag=lag,
            since=overrun.since,
            rate_in=rate_in,
            rate_done=rate_done,
            rate_wanted=round(wanted_rate(lag, stream.watermarks, capacity), 1),
            hot=overrun.hot,
            expiry=self._expiry(),
        )

    def _expiry(self) -> Expiry | None:
        """Return the expiry of the lagging input that has the least part of its retention left."""
        expiries = (
            Expiry(stream=name, kept=kept, left=round(kept - self.lags[name].seconds, 1))
            for name, kept in self.kept.items()
            if name in self._over
        )
        return max(expiries, key=lambda expiry: expiry.used, default=None)


def _wanted_part(pressure: Pressure) -> float:
    """Return the part of the incoming records that a stream's reader wants."""
    return pressure.rate_wanted / pressure.rate_in if pressure.rate_in else math.inf


def _growth(before: Mapping[str, int], after: Mapping[str, int], stream: str) -> int:
    """Return by how much the partitions of a stream have grown; an added partition does not
    count.
    """
    return sum(
        now - before.get(name, now) for name, now in after.items() if topic_and_number(name)[0] == stream
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
