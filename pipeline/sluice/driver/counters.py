"""What has gone through an incarnation so far: counted by its engine and by `progress`, shown to Prometheus by `metrics`."""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import add

from prometheus_client import Histogram

from sluice_ops.model.backpressure import Pressure

BOUNDS = (0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""From a realtime hop to a long outage. Unit: seconds."""


@dataclass(frozen=True)
class Waits:
    """How many records took no longer than each of BOUNDS, and how many there were in all: a histogram that takes a batch at a time."""

    counts: tuple[int, ...] = (0,) * (len(BOUNDS) + 1)
    seconds: float = 0.0
    """What all of them took together."""

    def plus(self, waits: Iterable[float]) -> "Waits":
        """Add those of some records."""
        ordered = sorted(waits)
        more = (*(bisect_right(ordered, bound) for bound in BOUNDS), len(ordered))
        return Waits(tuple(map(add, self.counts, more)), self.seconds + sum(ordered))


def _phases() -> Histogram:
    text = "How long each phase of a micro-batch took."
    return Histogram("sluice_tier_batch_phase_seconds", text, ["phase"], registry=None, buckets=BOUNDS)


@dataclass
class Commits:
    """What only a tier with a sink knows."""

    filtered: int = 0
    """Left out on purpose."""
    replays: int = 0
    late: int = 0
    """Of a tier with state: later than it takes them."""
    marks: int = 0
    """High-water marks that the sink tells replays by."""
    lost: int = 0
    """At most once: it is not known whether they were taken, and they are not sent again."""
    retries: int = 0
    """How often a batch was not taken by the sink, and tried again."""


@dataclass(frozen=True)
class HungTask:
    """A task has processed nothing for long, though input waits for it."""

    seconds: float
    sentence: str
    """Since when, where, and what is done about it."""


@dataclass
class Flow:
    """Counts from the process's start on. Each field is set whole, so that another thread may read it."""

    records_in: dict[str, int] = field(default_factory=dict)
    """Input that is done, by stream."""
    records_out: dict[str, int] = field(default_factory=dict)
    """What came out, by stream or sink; not what went to quarantine."""
    quarantined: int = 0
    commits: Commits | None = None
    lag: dict[str, int] = field(default_factory=dict)
    """Records that wait, by stream; empty while the tier is another's, or does not run."""
    waiting: dict[str, float] = field(default_factory=dict)
    """For how long the oldest record of each stream has waited; empty likewise. Unit: seconds."""
    pressure: Pressure | None = None
    """It is behind too far; None likewise."""
    metered: bool = False
    """It was held back, and lets records in batch by batch."""
    away: str | None = None
    """Why the sink, or what a batch needs besides, takes nothing now; None likewise."""
    unanswered: str | None = None
    """Why Kafka did not say at the last look how far its streams go; None likewise."""
    checkpoint: str | None = None
    """Why the disk of the tier's checkpoints takes nothing, or takes long; None likewise."""
    unread: str | None = None
    """Why it does not read partitions that were added."""
    narrow: str | None = None
    """Why it puts no records yet into partitions that were added to its outputs."""
    hung: HungTask | None = None
    """The task that has hung the longest; None: no task hangs, or the query does not run."""
    executors_ended: int = 0
    """How many executors were ended because a task hung."""
    state: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Rows and bytes of memory of Spark's state, by operator, at the end of the last batch; empty likewise."""
    looked: float | None = None
    """When input, output and lag were last measured; None likewise. Unit: epoch seconds."""
    latency_ms: float | None = None
    """From arrival in the pipeline to the output, the median of the last samples."""
    waits: Waits = field(default_factory=Waits)
    """The same of each record (a tier that writes streams: of samples)."""
    last_out: float | None = None
    """When the last record came out, or the last batch was committed. Unit: epoch seconds."""
    restarts: int = 0
    """How often the query failed, and was begun again in place."""
    failure: str | None = None
    """Why it failed last."""
    phases: Histogram = field(default_factory=_phases)

    @property
    def waits_for(self) -> str | None:
        """What the tier waits for, as `sluice status` shows it."""
        return self.away or self.checkpoint or self.unanswered


def raised(counts: dict[str, int], more: dict[str, int]) -> dict[str, int]:
    """Return the counts with some more."""
    return {name: counts.get(name, 0) + more.get(name, 0) for name in (*counts, *more)}
