"""An incarnation's life: where it is placed, what it is told, what it reports.

The controller writes the owner record; every driver of the tier derives from it, alone, what it has to do (`directive`).
"""

from enum import StrEnum
from typing import Any

from pydantic import Field

from sluice_ops.model.backpressure import Pressure
from sluice_ops.model.ids import HostName, Incarnation, TierName, UnitId
from sluice_ops.model.resources import Frozen
from sluice_ops.model.routing_epochs import Ways

STATE_PARTITIONS = 2
"""Over so many partitions the state of a tier is spread in Spark, until somebody changes it."""


class Placement(Frozen):
    """Where an incarnation's driver and workers are: one entry of `slots` for each worker."""

    driver: HostName
    slots: tuple[HostName, ...]

    @property
    def hosts(self) -> frozenset[HostName]:
        """Every host that holds a part of it."""
        return frozenset((self.driver, *self.slots))

    def first(self, workers: int) -> "Placement":
        """Return it with so many of its workers, from the first on."""
        return self.model_copy(update={"slots": self.slots[:workers]})


class Timed(Frozen):
    """A start or a stop that somebody asked for: what it was predicted to take, and what it took."""

    by: str
    at: float
    """When it began. Wall clock, for people."""
    predicted_seconds: float | None
    """None: none had been timed before."""
    seconds: float | None = None
    """None: it is not through."""


class IncarnationSpec(Frozen):
    """Written by the controller when it decides to have this incarnation.

    Later only `retired` changes, what is told of its start and stop, and the host of a slot that was lost: same label, so the same
    application takes it on elsewhere.
    """

    tier: TierName
    incarnation: Incarnation
    placement: Placement
    reason: str
    """Why it exists, for people: `drain h2`, `driver of 3 was killed`."""
    created_at: float
    """Wall clock, for people."""
    retired: bool = False
    """Its units are taken off the assignments; the number is never used again."""
    failures: int = 0
    """How many owners of this tier have failed in a row before it."""
    release: str | None = None
    """The release whose code it runs; None: what its host's checkout holds, as before there were releases."""
    partitions: int = STATE_PARTITIONS
    """Over how many partitions its state is spread, if it holds any; a checkpoint with another number is spread anew as it begins."""
    attempt: int = 0
    """`TierWanted.attempt` when it was written: a higher one has a tier that was given up started again."""
    start: Timed | None = None
    """How its tier was started with it. None: it took over from another one, or was begun because that had died."""
    stop: Timed | None = None
    """How its tier was stopped, when it owned it."""
    hung: str | None = None
    """As its tier's owner it hung: since when, and what was done about it."""


class State(StrEnum):
    """What a driver says of itself."""

    STARTING = "starting"
    WARMING = "warming"
    READY = "ready"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"
    FAILED = "failed"
    FENCED = "fenced"


TRANSITIONS: dict[State, dict[State, str]] = {
    State.STARTING: {
        State.WARMING: "it will wait for a hand-over",
        State.RUNNING: "it owns the tier already, nothing to wait for",
        State.PAUSED: "the tier is paused",
        State.STOPPED: "told to exit",
        State.FAILED: "an error",
        State.FENCED: "a newer incarnation owns the tier",
    },
    State.WARMING: {
        State.READY: "the warm-up has settled",
        State.STOPPED: "told to exit",
        State.FAILED: "an error",
        State.FENCED: "a newer incarnation owns the tier",
    },
    State.READY: {
        State.RUNNING: "it was given the tier, or overlaps with the owner",
        State.PAUSED: "it was given a paused tier",
        State.STOPPED: "told to exit",
        State.FAILED: "an error",
        State.FENCED: "a newer incarnation owns the tier",
    },
    State.RUNNING: {
        State.PAUSED: "stopped where nothing was half done; slots and session kept",
        State.STOPPED: "handed over, or told to exit",
        State.FAILED: "an error",
        State.FENCED: "a newer incarnation owns the tier",
    },
    State.PAUSED: {
        State.RUNNING: "resumed",
        State.STOPPED: "handed over, or told to exit",
        State.FAILED: "an error",
        State.FENCED: "a newer incarnation owns the tier",
    },
    State.STOPPED: {},
    State.FAILED: {},
    State.FENCED: {},
}
"""Allowed changes of state, with the reason for each. Anything else is an error."""


class IllegalTransitionError(Exception):
    """A driver tried a change of state that the table does not have."""


def advance(before: State, after: State) -> State:
    """Return `after`, or refuse the step."""
    if before != after and after not in TRANSITIONS[before]:
        message = f"an incarnation cannot go from {before} to {after}"
        raise IllegalTransitionError(message)
    return after


class Internal(Frozen):
    """What an incarnation has left for whoever goes on: a file in the tier's folder of checkpoints, below `internal/`."""

    name: str
    size: int
    """Unit: bytes."""
    sha256: str


class Repartitioned(Frozen):
    """A state that was spread over another number of partitions, and the proof that all of it is there."""

    before: int
    """Partitions."""
    after: int
    keys_before: int
    """Counted in all stores of the checkpoint that it was made from."""
    keys_after: int
    """Counted in the one that was made."""
    seconds: float


class Receipt(Frozen):
    """Proof of where an incarnation stopped or started: offsets per input partition, `stream/partition` → offset."""

    positions: dict[str, int]
    """Next offset to read for each input partition: everything before it is done."""
    batch: int | None = None
    """The last batch in the ledger, for a tier with a sink."""
    internal: Internal | None = None
    """Where it stopped: what it has left."""
    repartitioned: Repartitioned | None = None
    """Where it started: that its state was spread anew, if it was."""
    streams: dict[str, str] = Field(default_factory=dict)
    """The id of each input stream that the positions belong to; one that is not here was not known."""
    epochs: dict[str, int] = Field(default_factory=dict)
    """The epoch of each input partition's leader when the positions were read, or later; one that is not here was not known."""
    at: float


class WorkerReceipt(Frozen):
    """What a driver says of a worker that was paused alone, or woken again."""

    paused: bool
    seconds: float
    """How long it took until it had done its last task, or was given tasks again."""
    tasks: int = 0
    """Paused: tasks that it had done by then."""
    failed: int = 0
    """Paused: tasks of its that failed."""
    at: float


TRIAL_SECONDS = 20.0
"""So long after a driver owns its tier it says what has gone through it: ten micro-batches."""


class Flowed(Frozen):
    """What has gone through an incarnation. Said when it has owned its tier for `TRIAL_SECONDS`, is held, or had its query fail."""

    seconds: float
    """For how long it has owned the tier."""
    records_in: int
    """Input that is done."""
    records_out: int
    quarantined: int
    waiting: int
    """Input that is not done yet, when it was looked at last."""
    restarts: int
    """How often its query failed, and was begun again in place."""
    error: str | None = None
    """Why it failed last."""


class IncarnationReport(Frozen):
    """What a driver says, in `tiers/<t>/incarnations/<i>/report`. Rewritten only when something changes, never as a heartbeat."""

    state: State
    since: float
    """Wall clock of the last change of state, for people; or of when what it had waited for was back."""
    epoch: int = 0
    """Of the last owner record that had it run: a record that is made anew goes on from here, for the sink refuses smaller ones."""
    pid: int
    away: str | None = None
    """What it waits for: before it can begin, Kafka or PostgreSQL; while it runs, its sink, as long as that takes nothing."""
    caught_up: bool = False
    """Its output is level with the owner's, or its first batch is written: beside an owner, it has taken over."""
    started_from: Receipt | None = None
    settled: Receipt | None = None
    """Up to where all was out a while ago, for a tier that writes streams; said now and then."""
    stopped_at: Receipt | None = None
    error: str | None = None
    """The last error, in one or a few lines, when failed or fenced."""
    flowed: Flowed | None = None
    gap_seconds: float | None = None
    """The largest gap in this tier's output over the hand-over to it."""
    measured: bool = False
    """It runs, owns the tier and has looked how far behind it is: `pressure` holds."""
    pressure: Pressure | None = None
    metered: bool = False
    """It lets records in batch by batch, after it was held back, until it has caught up."""
    unread: str | None = None
    """Why it does not read partitions that were added to its streams."""
    hung: str | None = None
    """Since when a task of its has processed nothing though input waits, and what is done about it."""
    narrow: str | None = None
    """Why it puts no records yet into partitions that were added to its outputs."""
    ways: Ways | None = None
    """How it spreads its records, for a tier that writes streams; whoever goes on has to do the same (decision record 0040)."""
    workers: dict[UnitId, WorkerReceipt] = Field(default_factory=dict)
    """What became last of each worker that was paused alone, or woken again."""
    history: tuple[tuple[State, float], ...] = ()

    @property
    def paused_workers(self) -> frozenset[UnitId]:
        """The workers that are paused alone."""
        return frozenset(worker for worker, receipt in self.workers.items() if receipt.paused)


class Phase(StrEnum):
    """Where a tier's transition is."""

    STEADY = "steady"
    PREPARE = "prepare"
    CUT = "cut"


class OwnerRecord(Frozen):
    """`tiers/<t>/owner`, the fence: set only by the controller, with a version check."""

    owner: Incarnation | None = None
    next: Incarnation | None = None
    standby: Incarnation | None = None
    """There in case the owner dies."""
    standby_runs: bool = True
    """Whether it runs beside the owner, or is warm and waits."""
    phase: Phase = Phase.STEADY
    paused: bool = False
    paused_workers: tuple[UnitId, ...] = ()
    """Slots of the owner that are kept without tasks, while the others work on."""
    held_for: TierName | None = None
    """It runs and lets nothing in, because this tier, further on, is behind."""
    stopped: bool = False
    """The tier is not wanted at all: every incarnation exits."""
    epoch: int = 0
    """Grows with each write of the controller; who wrote it: `controller/leader`."""


class Directive(StrEnum):
    """What an incarnation has to do now."""

    RUN = "run"
    STANDBY = "standby"
    """Be warm and wait."""
    HOLD = "hold"
    """Stop where nothing is half done, write the receipt, keep session and slots, wait."""
    EXIT = "exit"


def directive(record: OwnerRecord, me: Incarnation) -> Directive:
    """Derive what incarnation `me` has to do from the owner record alone."""
    if record.stopped:
        return Directive.EXIT
    if me == record.standby and not record.standby_runs:
        return Directive.STANDBY
    if me in {record.owner, record.standby}:
        return Directive.HOLD if record.paused else Directive.RUN
    if me == record.next:
        return Directive.RUN if record.phase is Phase.CUT and not record.paused else Directive.STANDBY
    newer = [number for number in (record.owner, record.next) if number is not None and number > me]
    return Directive.EXIT if newer else Directive.STANDBY


class TierWanted(Frozen):
    """`config/wanted/<tier>`: what Airflow, the CLI or a runbook wants of a tier."""

    running: bool = False
    paused: bool = False
    paused_workers: tuple[UnitId, ...] = ()
    """Slots that are to be paused alone; those of an incarnation that owns the tier no more are of no account."""
    attempt: int = 0
    """Raised to have a tier that was given up started again."""
    release: str | None = None
    """The release that its next incarnation is begun from; set at its first start, and by an upgrade that was accepted."""
    partitions: int = STATE_PARTITIONS
    """Over how many partitions the state of its next incarnation is spread; set by a repartition that was accepted."""
    skipped: dict[str, int] = Field(default_factory=dict)
    """Before these offsets of its inputs, by `stream/partition`, all that it has not read is gone for good, as a person has said."""
    by: str = ""
    at: float = 0.0


class TierProgress(Frozen):
    """One row of `tier_progress` in PostgreSQL: a driver's figures, rewritten every few seconds (they stay out of ZooKeeper)."""

    tier: TierName
    incarnation: Incarnation
    at: float
    rate_in: float = 0.0
    rate_out: float = 0.0
    lag: int = 0
    latency_ms: float | None = None
    """From the record's arrival in the pipeline to this tier's output, the median of the last samples."""
    slots: dict[str, int] = Field(default_factory=dict)
    """Records read so far by the executor in each slot, by `host/slot`."""
    details: dict[str, Any] = Field(default_factory=dict)
