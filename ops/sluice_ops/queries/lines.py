"""The lines of lists, and the contract of `--json`: one model for each kind of line."""

from collections import Counter

from pydantic import Field

from sluice_ops.model.batch import Reclaim
from sluice_ops.model.resources import Frozen
from sluice_ops.model.share import Amount
from sluice_ops.model.source import Failure, FileFigures

IN_DRIVER = "in the driver"
"""Shown instead of the workers of a light tier: where its tasks run."""


class HostLine(Frozen):
    """One host."""

    name: str
    zone: str
    state: str
    """up, cordoned, draining, drained, rebooting or lost."""
    slots: tuple[str, ...]
    """Ids of the assigned slots."""
    drivers: tuple[str, ...]
    address: str
    rack: str | None
    labels: tuple[str, ...]
    cpu: float
    memory: int
    """MiB."""
    limits: str | None
    by: str
    """Who set the host's state."""
    since: float | None
    quarantine: str | None
    """Why the host is in quarantine, and until when."""
    ending: str | None
    """When EC2 ends the host, or that EC2 recommends to leave it."""
    busy_since: float | None = None
    """Since when the host's processors have had no time left."""
    busy_part: float | None = None
    """The part of a minute in which the host's processors are busy, in tenths."""
    reboot_needed: bool = False
    """Whether an update of the host needs a reboot."""


class DriverLine(Frozen):
    """Where a tier's driver runs."""

    host: str | None = None
    state: str | None = None
    pid: int | None = None


class WorkerLine(Frozen):
    """One worker of a tier."""

    slot: str
    host: str
    state: str
    """active, spare, paused, starting, draining or lost."""


class BatchTenantLine(Frozen):
    """One batch tenant, and what its jobs have together."""

    tenant: str
    minimum: int
    maximum: int | None
    priority: int
    slots: int
    running: int
    """The jobs that have slots, or have to end."""
    queued: int


class BatchJobLine(Frozen):
    """One batch job."""

    job: str
    tenant: str
    state: str
    """running, queued, or ending: batch gave all its slots back."""
    slots: int
    wanted: int | None
    """None: as many slots as its tenant may have."""
    by: str
    """The run and the task in Airflow."""
    since: float
    """When the job got slots, or was queued."""
    back_by: float | None
    """Until when tasks in slots that the job has lost may run."""
    reason: str
    """Why the job waits, or why it lost slots."""


class ScalerLine(Frozen):
    """The scaler's last decision about one tier."""

    tier: str
    mode: str
    """off, advise or act."""
    slots: int
    """The slots that the tier had at the decision, without paused workers."""
    wanted: int
    reason: str
    since: float
    """When `wanted` changed last."""


class TierLine(Frozen):
    """One tier."""

    name: str
    kind: str
    mode: str
    state: str
    incarnation: int | None
    release: str | None
    """The release that the owner runs; None: the code in the host's checkout at its start."""
    published: str | None
    """The release that was published last."""
    partitions: int | None
    """Partitions of the tier's state; None: the tier has no state, or does not run."""
    driver: DriverLine
    workers: tuple[WorkerLine, ...]
    next: int | None
    """The incarnation that is being prepared, if any."""
    standby: int | None
    """The incarnation that is the standby, if any."""
    phase: str
    sentence: str
    error: str | None
    rate_in: float | None
    """Records per second."""
    rate_out: float | None
    lag: int | None
    """Records that the tier has not read yet."""
    pressure: str | None
    """How far the tier lags, while it exceeds a lag limit."""
    drift: str | None
    """How the tier has drifted, and when the controller repairs it."""
    starved: str | None
    """Where the tier is starved of processor time, and what is done about it."""
    held_for: str | None
    """The tier whose lag throttles this tier."""
    admitted: float | None
    """Records that a throttled tier may let in each second."""
    metered: bool
    """The tier takes records batch by batch: it is throttled, or catches up after it."""
    scaler: ScalerLine | None
    """How many workers the scaler wants, and why; None: it has decided nothing about the tier."""
    hung: str | None
    """Since when a task has processed nothing though input waits, and what is done about it."""
    unread: str | None
    narrow: str | None
    """Why the tier does not read partitions that were added to its streams."""
    latency_ms: float | None
    """The time from a record's arrival in the pipeline to this tier's output: the median."""
    gap_seconds: float | None
    """The largest gap in the tier's output at the last handover."""
    inputs: tuple[str, ...] = ()
    """The streams that the tier reads."""
    outputs: tuple[str, ...] = ()
    """The streams that the tier writes; none if the tier ends in a sink."""
    latency_p99_ms: float | None = None
    """The same time of the slowest record in a hundred; None: the driver is of an older version."""
    own_counters: dict[str, int] = Field(default_factory=dict)
    """The counters of the pipeline's own, since the start of the tier's driver."""
    input_lags: dict[str, int] = Field(default_factory=dict)
    """By input stream: the records that the tier has not read yet. Older drivers do not tell."""
    input_rates: dict[str, float] = Field(default_factory=dict)
    """By input stream: records per second."""
    output_rates: dict[str, float] = Field(default_factory=dict)
    """By stream or sink: records per second."""
    quarantined: int | None = None
    """Records that went to quarantine since the start of the tier's driver."""
    light: bool = False
    """Whether the driver does the work itself, so that the tier has no workers."""

    @property
    def workers_in_words(self) -> str:
        """How many workers are in which state, or that the driver does the work."""
        if self.light:
            return IN_DRIVER
        states = Counter(worker.state for worker in self.workers)
        return ", ".join(f"{count} {state}" for state, count in states.items())


class SourceLine(Frozen):
    """One source of records from outside. Counts begin with its process."""

    name: str
    stream: str
    kind: str
    """files or http."""
    state: str
    """running, stands still, or lost."""
    sentence: str
    """Why it stands still or is lost; empty: it runs."""
    host: str
    pid: int
    where: str
    """The input: patterns of files, or the address for clients."""
    since: float
    failures: tuple[Failure, ...]
    """The last failures of earlier processes."""
    at: float | None
    """When the figures were measured; None: there are none."""
    rate: float | None
    """Records that Kafka acknowledges each second."""
    records: int | None
    last: float | None
    """When Kafka acknowledged the last record."""
    waiting_bytes: int | None
    """Bytes of requests, or of lines, that are not acknowledged yet."""
    refused: int | None
    """Transactions of which Kafka took nothing."""
    throttled: int | None
    """Requests that were answered with 429."""
    files: tuple[FileFigures, ...]
    """The positions in the files with the most unread bytes."""


class SlotLine(Frozen):
    """One slot."""

    id: str
    host: str
    tenant: str
    incarnation: int
    state: str
    pid: int | None
    restarts: int
    records: int | None
    """Records read by the slot's executor, if the tier's driver has reported them."""
    exit: str | None


class ShareLine(Frozen):
    """The share of one tenant."""

    tenant: str
    minimum: int
    target: int
    """The target of the site file."""
    maximum: int
    slots: int
    """The slots that apply now, over all layers."""
    amount: Amount
    """The same as it was set: in slots, or in per cent of the cluster."""
    extra: int
    spare: int
    """The spares that the tenant should have besides."""
    where: str | None
    layer: str
    by: str
    """Who set the number that applies now, and when; the site file has no time."""
    since: float | None
    until: float | None
    """When the number ends; None: it stays until somebody changes it."""
    held: int
    """Slots that the tenant has now, with spares."""
    light: bool = False
    """Whether the tenant is a tier whose driver does the work, so that it has no slots."""


class PipelineShareLine(Frozen):
    """The share of the whole pipeline."""

    minimum: Amount
    maximum: Amount
    slots: int
    """The slots of all tiers by their shares, with spares and without bursts."""
    held: int
    """The slots that the tiers have now, also those of bursts."""
    part: float
    """The per cent of the cluster that `slots` are."""
    reduced: tuple[str, ...]
    """The tiers that get fewer slots than their own shares, because of the maximum."""
    over: bool
    """Whether the minimums of the tiers take more than the maximum."""


class ReclaimsLine(Frozen):
    """How fast the last slots of `batch` came back. Unit: seconds."""

    limit: float
    """`reclaim_seconds` of the site file."""
    count: int
    p50: float | None
    p99: float | None
    late: int
    """How many came back later than they should have."""
    going: int
    """The slots that go back now."""
    last: tuple[Reclaim, ...]
    """The last ones, the newest first."""


class ChangeLine(Frozen):
    """One change, or a start or stop of a tier, with its predicted and actual times."""

    id: str
    what: str
    by: str
    state: str
    """active, done or aborted."""
    started_at: float
    predicted_seconds: float | None
    """None if no change of this kind had been timed before."""
    seconds: float | None
    """None while the change is active, and for a start or stop that never finished."""
    predicted_gap_seconds: float | None
    gap_seconds: float | None
    """The widest gap in the output of a tier. A start or a stop has none."""
    steps: dict[str, float]
    """How long each step took, also the abort. Unit: seconds."""
    abort_predicted_seconds: float | None = None
    """The predicted duration of the abort. Unit: seconds."""


class DriftLine(Frozen):
    """One tier that is not placed as a plan would place it."""

    tier: str
    why: str
    moves: int
    """How many of the tier's workers and drivers a repair would move."""
    before: str
    after: str


class HoldLine(Frozen):
    """One time that a tier was throttled."""

    tier: str
    culprit: str
    """The tier whose lag was the reason."""
    sentence: str
    """The lag of the culprit when the hold began."""
    begun: float
    ended: float | None


class OperationLine(Frozen):
    """One posted step of a change."""

    id: str
    change: str
    kind: str
    subject: str
    step: str
    by: str
    posted_at: float
    state: str
    """waiting, done or failed."""
    sentence: str
    journal: tuple[str, ...] = ()
