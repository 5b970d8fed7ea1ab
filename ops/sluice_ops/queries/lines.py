"""What the lists show, and what `--json` promises: one model for each kind of line."""

from sluice_ops.model.resources import Frozen
from sluice_ops.model.share import Amount


class HostLine(Frozen):
    """One host."""

    name: str
    zone: str
    state: str
    """up, cordoned, draining, drained, rebooting or lost."""
    slots: tuple[str, ...]
    """Ids of the slots that it is assigned."""
    drivers: tuple[str, ...]
    address: str
    rack: str | None
    labels: tuple[str, ...]
    cpu: float
    memory: int
    """MiB."""
    limits: str | None
    by: str
    """Who set its state."""
    since: float | None
    quarantine: str | None
    """Why it is in quarantine, and until when."""


class DriverLine(Frozen):
    """Where a tier's driver is."""

    host: str | None = None
    state: str | None = None
    pid: int | None = None


class WorkerLine(Frozen):
    """One worker of a tier."""

    slot: str
    host: str
    state: str
    """active, paused, starting, draining or lost."""


class TierLine(Frozen):
    """One tier."""

    name: str
    kind: str
    mode: str
    state: str
    incarnation: int | None
    release: str | None
    """Whose code its owner runs; None: as its host's checkout was when it started."""
    published: str | None
    """The release that was published last."""
    partitions: int | None
    """Over how many its state is spread; None: it holds none, or does not run."""
    driver: DriverLine
    workers: tuple[WorkerLine, ...]
    next: int | None
    """The incarnation that is being prepared, if any."""
    standby: int | None
    """The incarnation that runs beside the owner all the time, if any."""
    phase: str
    sentence: str
    error: str | None
    rate_in: float | None
    """Records per second."""
    rate_out: float | None
    lag: int | None
    """Records that it has not read yet."""
    pressure: str | None
    """How far it is behind, while that is too far."""
    starved: str | None
    """Where it is starved of processor time, and what is done about it."""
    held_for: str | None
    """The tier that is behind too far, for which this one lets nothing in."""
    metered: bool
    """It was held back, and lets records in batch by batch until it has caught up."""
    hung: str | None
    """Since when a task has processed nothing though input waits, and what is done about it."""
    unread: str | None
    narrow: str | None
    """Why it does not read partitions that were added to its streams."""
    latency_ms: float | None
    gap_seconds: float | None
    """The largest gap in its output over the last hand-over."""


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
    """Read so far by its executor, where its tier's driver has said so."""
    exit: str | None


class ShareLine(Frozen):
    """What one tenant is entitled to."""

    tenant: str
    minimum: int
    target: int
    """Of the site file."""
    maximum: int
    slots: int
    """What holds now, over all layers."""
    amount: Amount
    """The same as it was said: in slots, or in per cent of the cluster."""
    extra: int
    where: str | None
    layer: str
    by: str
    """Who set what holds now, and when; the site file has no time."""
    since: float | None
    until: float | None
    """When its time is over; None: it stays until somebody changes it."""
    held: int
    """Slots that it has now."""


class ChangeLine(Frozen):
    """One change, or a start or stop of a tier: what was predicted of it, and what it took."""

    id: str
    what: str
    by: str
    state: str
    """active, done or aborted."""
    started_at: float
    predicted_seconds: float | None
    """None where no change of its kind had been timed before."""
    seconds: float | None
    """None while it is under way, and of a start or stop that was never through."""
    predicted_gap_seconds: float | None
    gap_seconds: float | None
    """The widest gap that it left in the output of a tier. A start or a stop has neither."""
    steps: dict[str, float]
    """How long each step took, its abort too. Unit: seconds."""
    abort_predicted_seconds: float | None = None
    """How long its abort was to take."""


class DriftLine(Frozen):
    """One tier that is not as a plan would have it."""

    tier: str
    why: str
    moves: int
    """How many of its workers and driver the repair has somewhere else."""
    before: str
    after: str


class HoldLine(Frozen):
    """One time that a tier was held back."""

    tier: str
    culprit: str
    """The tier for which it was."""
    sentence: str
    """How that one was when it began."""
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
