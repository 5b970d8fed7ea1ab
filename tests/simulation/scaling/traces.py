"""The traces: what comes in each second, and what goes wrong meanwhile."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from sluice_ops.model.ids import TierName

Values = npt.NDArray[np.float64]
Curve = Callable[[Values], Values]
"""A value at each of some seconds of a trace."""

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
MONDAY = 1767571200.0
"""2026-01-05 00:00 UTC, the wall clock at the beginning of most traces."""
PEAK = 6000.0
"""Records/s at the highest point of most traces."""


@dataclass(frozen=True)
class SimulatedTier:
    name: TierName
    inputs: tuple[TierName, ...]
    rate: float
    """Records/s of one healthy worker that is always busy."""
    selectivity: float
    """Records that it writes for each record that it reads."""
    partitions: int
    """Partitions of its input stream."""


ENTRY, ENRICH, COUNTS, OUTBOUND = (TierName(name) for name in ("entry", "enrich", "counts", "outbound"))
TIERS = (
    SimulatedTier(ENTRY, (), rate=1200, selectivity=0.9, partitions=120),
    SimulatedTier(ENRICH, (ENTRY,), rate=500, selectivity=0.8, partitions=120),
    SimulatedTier(COUNTS, (ENRICH,), rate=800, selectivity=0, partitions=60),
    SimulatedTier(OUTBOUND, (ENRICH,), rate=400, selectivity=0, partitions=60),
)
"""The shape of the example pipeline `hits`; inputs come before their readers."""


def _gains() -> dict[TierName, float]:
    gains: dict[TierName, float] = {}
    written: dict[TierName, float] = {}
    for tier in TIERS:
        gains[tier.name] = sum(written[name] for name in tier.inputs) if tier.inputs else 1.0
        written[tier.name] = gains[tier.name] * tier.selectivity
    return gains


GAIN = _gains()
"""Records that reach a tier for each record that comes in."""


@dataclass(frozen=True)
class Fault:
    """Something that makes the workers of a tier slow for a while; more workers do not help."""

    tier: TierName
    start: float
    end: float
    slow_worker: float | None = None
    """Speed of one of its workers, as a part of a healthy worker's; None: all are healthy."""
    processors: int | None = None
    """All workers together do as much as this many healthy ones, because other processes use the
    processors; None: no limit.
    """

    def active(self, at: float) -> bool:
        return self.start <= at < self.end


@dataclass(frozen=True)
class Trace:
    name: str
    seconds: float
    load: Curve
    """Records/s that come in."""
    step: float = 5.0
    """Seconds of one step of the simulation."""
    decision: float = 15.0
    """Seconds between two decisions of a scaler."""
    noise: float = 0.0
    """Standard deviation of the load, as a part of it."""
    begins: float = MONDAY
    """Wall clock at second 0."""
    shifts: tuple[float, ...] = ()
    """When the load begins to move to another level, where it stays for at least half an hour."""
    slowdown: Mapping[TierName, Curve] = field(default_factory=dict)
    """The rate of a tier's workers over time, as a part of its rate at the beginning."""
    fault: Fault | None = None
    excused: tuple[float, float] | None = None
    """While no size can keep the lag under its limit."""
    changes_bar: bool = False
    """Whether the limit of changes an hour holds here."""

    def rates(self, tier: SimulatedTier, at: Values) -> Values:
        """Return the records/s of a healthy worker of the tier."""
        slowdown = self.slowdown.get(tier.name)
        return tier.rate * (slowdown(at) if slowdown else np.ones_like(at))


def through(points: Iterable[tuple[float, float]]) -> Curve:
    """Return the curve of straight lines between the points, which is level after the last one."""
    seconds, values = zip(*points, strict=True)
    return lambda at: np.interp(at, seconds, values)


def daily(at: Values) -> Values:
    """Return a sine curve from a quarter of the peak at 03:00 to the peak at 15:00."""
    return PEAK * (0.625 - 0.375 * np.cos(2 * np.pi * (at - 3 * HOUR) / DAY))


def sawtooth(at: Values) -> Values:
    """Return a load that grows from 30 % to 100 % in 40 minutes and then falls at once."""
    return PEAK * (0.3 + 0.7 * (at % (40 * MINUTE)) / (40 * MINUTE))


flash_crowd = through(
    ((0, 600), (2 * HOUR, 600), (2 * HOUR + 60, PEAK), (4 * HOUR, PEAK), (4 * HOUR + 60, 600))
)
plateau = through(((0, 0.7 * PEAK), (DAY, 0.7 * PEAK)))
leak = through(((0, 1.0), (12 * HOUR, 0.5)))

# The web site of the World Cup on 1998-06-30: minutes of the day (UTC), and thousands of requests
# in this minute. M. Arlitt and T. Jin, "A workload characterization study of the 1998 World Cup Web
# site", IEEE Network 14(3), 2000; counts: github.com/nimamahmoudi/worldcup98-dataset. Matches began
# at 14:30 and 19:00; the second one went on to penalties.
_WORLD_CUP = (
    (420, 15), (600, 16.5), (660, 17), (720, 19), (780, 24.5), (840, 27.5), (865, 38), (880, 73),
    (900, 106), (920, 131), (945, 135), (975, 147), (986, 176), (990, 149), (997, 121), (1020, 98),
    (1050, 82), (1130, 73), (1140, 81), (1150, 105), (1160, 122), (1185, 136), (1189, 150),
    (1195, 136), (1200, 133), (1230, 156), (1245, 170), (1253, 189), (1257, 175), (1285, 187),
    (1291, 210), (1302, 215), (1310, 189), (1315, 147), (1320, 120), (1324, 110), (1327, 69),
    (1330, 53), (1340, 43), (1360, 34), (1380, 30), (1440, 24), (1500, 21), (1560, 19), (1680, 17),
    (1740, 15), (1860, 16),
)  # fmt: skip
_WORLD_CUP_BEGINS = _WORLD_CUP[0][0] * MINUTE
world_cup = through((minute * MINUTE - _WORLD_CUP_BEGINS, count / 215 * PEAK) for minute, count in _WORLD_CUP)

# Passengers of New York's taxis in hundreds, each half hour from 00:00, on Tuesday 2014-07-08 and
# Sunday 2014-07-06. NYC Taxi and Limousine Commission; counts: Numenta Anomaly Benchmark,
# realKnownCause/nyc_taxi.csv.
_WORKDAY = (
    93, 81, 74, 50, 35, 25, 21, 19, 21, 21, 24, 43, 65, 113, 136, 165, 183, 203, 196, 194, 165, 169,
    161, 175, 181, 180, 179, 184, 190, 191, 186, 182, 160, 150, 174, 209, 239, 253, 255, 245, 219,
    201, 221, 231, 252, 220, 183, 149,
)  # fmt: skip
_WEEKEND = (
    154, 146, 131, 122, 111, 91, 86, 79, 72, 48, 31, 27, 25, 29, 32, 41, 41, 57, 64, 84, 94, 111,
    116, 129, 137, 136, 143, 148, 155, 160, 147, 148, 137, 146, 154, 169, 169, 169, 170, 159, 145,
    142, 161, 162, 140, 140, 132, 114,
)  # fmt: skip
_TAXI_DAYS = 8
taxi = through(
    (day * DAY + (slot + 0.5) * HOUR / 2, count / 255 * PEAK)
    for day in range(_TAXI_DAYS)
    for slot, count in enumerate(_WEEKEND if day % 7 in {5, 6} else _WORKDAY)
)

TRACES = (
    Trace("daily curve", 3 * DAY, daily, step=15, decision=30, noise=0.03, changes_bar=True),
    Trace("flash crowd", 8 * HOUR, flash_crowd, shifts=(2 * HOUR, 4 * HOUR)),
    Trace("slow leak", 12 * HOUR, plateau, noise=0.03, slowdown={ENRICH: leak}),
    Trace("sawtooth", 8 * HOUR, sawtooth),
    Trace(
        "broken worker",
        6 * HOUR,
        plateau,
        noise=0.03,
        fault=Fault(ENRICH, 2 * HOUR, 2 * HOUR + 20 * MINUTE, slow_worker=0.2),
        excused=(2 * HOUR, 3 * HOUR),
    ),
    Trace(
        "processors busy",
        6 * HOUR,
        plateau,
        noise=0.03,
        fault=Fault(ENRICH, 2 * HOUR, 3 * HOUR, processors=6),
        excused=(2 * HOUR, 3.5 * HOUR),
    ),
    Trace("World Cup 1998", DAY, world_cup, noise=0.03, begins=MONDAY + DAY + _WORLD_CUP_BEGINS),
    Trace("taxis, New York", _TAXI_DAYS * DAY, taxi, step=20, decision=60, noise=0.03),
)
