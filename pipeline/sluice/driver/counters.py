"""The counters of one incarnation.

Its engine and `progress_report` count; `driver_metrics` shows them to Prometheus.
"""

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
    """A histogram of waiting times that takes a batch at a time."""

    counts: tuple[int, ...] = (0,) * (len(BOUNDS) + 1)
    """Records that waited at most as long as each of BOUNDS; the last is the number of all
    records.
    """
    seconds: float = 0.0
    """The sum of all waiting times."""

    def plus(self, waits: Iterable[float]) -> "Waits":
        """Return the histogram with the waiting times of more records. Unit: seconds."""
        ordered = sorted(waits)
        more = (*(bisect_right(ordered, bound) for bound in BOUNDS), len(ordered))
        return Waits(tuple(map(add, self.counts, more)), self.seconds + sum(ordered))


def _phases() -> Histogram:
    text = "How long each phase of a micro-batch took."
    return Histogram("sluice_tier_batch_phase_seconds", text, ["phase"], registry=None, buckets=BOUNDS)


@dataclass
class Commits:
    """Counters of a tier with a sink."""

    filtered: int = 0
    """Records that the transform left out on purpose."""
    replays: int = 0
    late: int = 0
    """Records that came too late for the state."""
    marks: int = 0
    """Marks, by which the sink tells replays from new records."""
    lost: int = 0
    """Delivery at most once: records that the sink may not have taken, and that are not
    sent again.
    """
    retries: int = 0
    """How often a batch was retried because the sink did not take it."""


@dataclass(frozen=True)
class HungTask:
    """A task, or a query, that has processed nothing for long, although input waits for it."""

    seconds: float
    sentence: str
    """Since when, where, and the consequence."""


@dataclass
class Flow:
    """Counters since the start of the process.

    Each field is replaced as a whole, so that other threads may read it.

    Measured fields are empty or None while another incarnation owns the tier, or the query does not
    run.
    """

    records_in: dict[str, int] = field(default_factory=dict)
    """Processed input records, by stream."""
    records_out: dict[str, int] = field(default_factory=dict)
    """Output records, by stream or sink, without quarantine."""
    quarantined: int = 0
    commits: Commits | None = None
    lag: dict[str, int] = field(default_factory=dict)
    """Measured: records that wait, by stream."""
    waiting: dict[str, float] = field(default_factory=dict)
    """Measured: how long the oldest record of each stream has waited. Unit: seconds."""
    pressure: Pressure | None = None
    """Measured: the lag that is over its limit."""
    metered: bool = False
    """Whether the tier lets records in batch by batch: it is throttled, or catches up after it."""
    rate_taken: float | None = None
    """Measured: the records that a metered tier took in each second."""
    away: str | None = None
    """Why the sink, or another service that a batch needs, takes nothing now."""
    unanswered: str | None = None
    """Measured: why Kafka did not answer the last question for the ends of the streams."""
    checkpoint: str | None = None
    """Why the disk of the tier's checkpoints takes nothing, or is slow."""
    unread: str | None = None
    """Why the tier does not read partitions that were added to its inputs."""
    narrow: str | None = None
    """Why the tier writes no records yet into partitions that were added to its outputs."""
    hung: HungTask | None = None
    """Measured: the task that has hung the longest."""
    executors_ended: int = 0
    """How many executors were ended because a task hung."""
    state: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Measured: rows and bytes of memory of Spark's state, by operator, at the end of the last
    batch.
    """
    busy_seconds: float = 0.0
    """The time in which batches were processed, of a tier in micro-batches."""
    batch_began: float | None = None
    """When the batch began that a tier with a sink processes now. Monotonic clock."""
    fixed_seconds: float = 0.0
    """The part of it that does not depend on the number of records."""
    looked: float | None = None
    """Measured: when input, output and lag were last measured. Unit: epoch seconds."""
    latency_ms: float | None = None
    """The time from arrival in the pipeline to the output, as the median of the last samples."""
    latency_p99_ms: float | None = None
    """The same time of the slowest sample in a hundred."""
    waits: Waits = field(default_factory=Waits)
    """The same time of each record; samples of a tier that writes streams."""
    last_out: float | None = None
    """When the last record came out, or the last batch was committed. Unit: epoch seconds."""
    restarts: int = 0
    """How often the query failed and was restarted in place."""
    failure: str | None = None
    """The query's last error."""
    phases: Histogram = field(default_factory=_phases)

    @property
    def waits_for(self) -> str | None:
        """The reason why the tier waits, as `sluice status` shows it."""
        return self.away or self.checkpoint or self.unanswered


def slowest_in_hundred(waits: Iterable[float]) -> float | None:
    """Return the 99th percentile (nearest rank) of waiting times; None without one."""
    ordered = sorted(waits)
    return ordered[-(len(ordered) // 100) - 1] if ordered else None


def raised(counts: dict[str, int], more: dict[str, int]) -> dict[str, int]:
    """Return the sums of both, by key."""
    return {name: counts.get(name, 0) + more.get(name, 0) for name in (*counts, *more)}
