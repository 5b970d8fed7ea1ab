"""Incarnations: their placement, the owner record, and the reports of their drivers.

The controller writes the owner record. Each driver of the tier derives from this record alone what
it has to do (`directive`).
"""

from enum import StrEnum
from typing import Any

from pydantic import Field

from sluice_ops.model.backpressure import Pressure
from sluice_ops.model.ids import HostName, Incarnation, TierName, UnitId
from sluice_ops.model.resources import Frozen
from sluice_ops.model.routing_epochs import RoutingEpochs
from sluice_ops.model.savepoint import StartFrom
from sluice_ops.model.wording import listed

STATE_PARTITIONS = 2
"""The default number of partitions of a tier's state in Spark."""


class Placement(Frozen):
    """The hosts of an incarnation's driver and workers, with one entry of `slots` for each
    worker.
    """

    driver: HostName
    slots: tuple[HostName, ...]

    @property
    def hosts(self) -> frozenset[HostName]:
        """All hosts with a part of the incarnation."""
        return frozenset((self.driver, *self.slots))

    @property
    def in_words(self) -> str:
        """The hosts as a part of a sentence."""
        work = f"workers on {listed(self.slots)}" if self.slots else "which does the work itself"
        return f"driver on {self.driver}, {work}"

    def first(self, workers: int) -> "Placement":
        """Return the placement with only the first `workers` workers."""
        return self.model_copy(update={"slots": self.slots[:workers]})


class Timed(Frozen):
    """A requested start or stop, with its predicted and its real time."""

    by: str
    at: float
    """When it began. Wall clock, for people."""
    predicted_seconds: float | None
    """None: no start or stop had been timed before."""
    seconds: float | None = None
    """None: it is not complete."""


class IncarnationSpec(Frozen):
    """The specification of an incarnation, written by the controller.

    Later, only these values change: `retired`, the times of start and stop, `hung`, and the host of
    a slot that was lost. The new slot has the same label, so the same Spark application uses it.
    """

    tier: TierName
    incarnation: Incarnation
    placement: Placement
    reason: str
    """Why the incarnation exists, for people: `drain h2`, `driver of 3 was killed`."""
    created_at: float
    """Wall clock, for people."""
    retired: bool = False
    """Whether its units are removed from the assignments. The number is never used again."""
    failures: int = 0
    """How many owners of this tier have failed in a row before this incarnation."""
    release: str | None = None
    """The release that the incarnation runs; None: the code in its host's checkout."""
    partitions: int = STATE_PARTITIONS
    """The partitions of its state, if it holds any.

    A checkpoint with another number is repartitioned at the start.
    """
    savepoint: StartFrom | None = None
    """The savepoint from which its state comes; None: from no savepoint."""
    attempt: int = 0
    """`TierWanted.attempt` when this was written. A higher one starts a given-up tier again."""
    start: Timed | None = None
    """The requested start of the tier; None: the incarnation replaced another one, alive
    or dead.
    """
    after_stop: bool = False
    """Whether the driver of the replaced incarnation was told to stop, as at `sluice down`.

    Time without output is no gap then.
    """
    stop: Timed | None = None
    """The requested stop of the tier while this incarnation owned it."""
    hung: str | None = None
    """If it hung as the tier's owner: since when, and what was done."""


class State(StrEnum):
    """The state of a driver, as it reports it."""

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
        State.WARMING: "it will wait for a handover",
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
"""The allowed transitions, each with its reason. All others are errors."""


class IllegalTransitionError(Exception):
    """A driver tried a transition that is not in `TRANSITIONS`."""


def advance(before: State, after: State) -> State:
    """Return `after`. Raise IllegalTransitionError if the transition is not allowed."""
    if before != after and after not in TRANSITIONS[before]:
        message = f"an incarnation cannot go from {before} to {after}"
        raise IllegalTransitionError(message)
    return after


class Internal(Frozen):
    """A file that an incarnation leaves for the next one, below `internal/` in the tier's
    checkpoints.
    """

    name: str
    size: int
    """Unit: bytes."""
    sha256: str


class Repartitioned(Frozen):
    """A repartitioned state, with the proof that it is complete."""

    before: int
    """The number of partitions before."""
    after: int
    keys_before: int
    """The keys in all stores of the old checkpoint."""
    keys_after: int
    """The keys in all stores of the new checkpoint."""
    seconds: float


class Receipt(Frozen):
    """The proof of where an incarnation stopped or started, by `stream/partition`."""

    positions: dict[str, int]
    """The next offset to read of each input partition. All earlier records are processed."""
    batch: int | None = None
    """The last batch in the ledger, for a tier with a sink."""
    internal: Internal | None = None
    """At a stop: the file for the next incarnation."""
    repartitioned: Repartitioned | None = None
    """At a start: the repartitioning of the state, if there was one."""
    streams: dict[str, str] = Field(default_factory=dict)
    """By input stream: the topic id for which the positions are valid.

    A missing id was not known.
    """
    epochs: dict[str, int] = Field(default_factory=dict)
    """By input partition: the leader epoch when the positions were read, or later.

    A missing epoch was not known.
    """
    at: float


class WorkerReceipt(Frozen):
    """A driver's report of a single worker that was paused or resumed."""

    paused: bool
    seconds: float
    """How long it took until the worker's last task was done, or until it got tasks again."""
    tasks: int = 0
    """For a pause: the tasks that the worker had done by then."""
    failed: int = 0
    """For a pause: the tasks of the worker that failed."""
    gap_seconds: float | None = None
    """For a worker that joins a realtime tier: the largest gap in the output, once it is known."""
    at: float


TRIAL_SECONDS = 20.0
"""How long a driver owns its tier before it reports its counts: ten micro-batches.

Unit: seconds.
"""


class Flowed(Frozen):
    """The counts of an incarnation.

    A driver reports them after it has owned its tier for `TRIAL_SECONDS`, when it is held, and when
    its query has failed.
    """

    seconds: float
    """How long the incarnation has owned the tier."""
    records_in: int
    """The processed input records."""
    records_out: int
    quarantined: int
    waiting: int
    """The input records that were not yet processed at the last look."""
    restarts: int
    """How often its query failed and was restarted in place."""
    error: str | None = None
    """The last failure of the query."""


class IncarnationReport(Frozen):
    """`tiers/<t>/incarnations/<i>/report`: the driver's report.

    Rewritten only when a value changes, never as a heartbeat.
    """

    state: State
    since: float
    """Wall clock of the last change of state, or of the end of the last wait, for people."""
    epoch: int = 0
    """The epoch of the last owner record that told the incarnation to run.

    A recreated record continues from this epoch, because the sink refuses smaller ones.
    """
    pid: int
    away: str | None = None
    """The service for which the driver waits.

    Before it can begin, this is Kafka or PostgreSQL. While it runs, this is its sink if the sink
    takes no output.
    """
    caught_up: bool = False
    """Whether the incarnation has taken over beside the owner.

    Its output is level with the owner's, or its first batch is written.
    """
    started_from: Receipt | None = None
    settled: Receipt | None = None
    """Positions before which all output was written some time ago, for a tier that writes streams.

    Reported from time to time.
    """
    stopped_at: Receipt | None = None
    error: str | None = None
    """The last error, in one or a few lines, if failed or fenced."""
    flowed: Flowed | None = None
    gap_seconds: float | None = None
    """The largest gap in the tier's output around the handover to this incarnation.

    None: not known yet, or the tier was stopped or paused on request before its output.
    """
    silent_seconds: float | None = None
    """How long nothing came out before the first output of the incarnation.

    Time without input does not count. None: nothing came out yet, or it was not measured.
    """
    measured: bool = False
    """Whether `pressure` is valid: the incarnation runs, owns the tier and has measured its lag."""
    pressure: Pressure | None = None
    metered: bool = False
    """Whether the tier takes records in batch by batch: it is throttled, or catches up after it."""
    rate_taken: float | None = None
    """Records that a metered tier took in each second; None: not metered, or not measured yet."""
    unread: str | None = None
    """Why the incarnation does not read partitions that were added to its inputs."""
    hung: str | None = None
    """Since when a task has processed nothing although input waits, and what is done."""
    narrow: str | None = None
    """Why the incarnation does not yet write into partitions that were added to its outputs."""
    ways: RoutingEpochs | None = None
    """The routing epochs of a tier that writes streams.

    The next incarnation has to use the same (decision 40).
    """
    workers: dict[UnitId, WorkerReceipt] = Field(default_factory=dict)
    """By worker: the last report of a single worker that was paused or resumed."""
    spare_workers: tuple[UnitId, ...] | None = None
    """The workers that wait as spares; None: the driver is of an older version and knows none."""
    first_tasks: dict[UnitId, int] | None = None
    """By worker that works: the records that its first tasks had read.

    0: for ten seconds no record waited, and an empty task ended there. None: the driver is of an
    older version.
    """
    takes_workers: bool = False
    """Whether workers that are added later get tasks; drivers of older versions give them none."""
    plans_anew: bool = False
    """Whether a realtime query is planned anew for them; drivers of older versions do not do so."""
    reads_packed: bool = False
    """Whether it reads a lineage in one header; drivers of older versions do not."""
    history: tuple[tuple[State, float], ...] = ()

    @property
    def paused_workers(self) -> frozenset[UnitId]:
        """The workers that are paused alone."""
        return frozenset(worker for worker, receipt in self.workers.items() if receipt.paused)


class Phase(StrEnum):
    """The phase of a tier's handover."""

    STEADY = "steady"
    PREPARE = "prepare"
    CUT = "cut"


class OwnerRecord(Frozen):
    """`tiers/<t>/owner`, the fence. Only the controller writes it, with a version check."""

    owner: Incarnation | None = None
    next: Incarnation | None = None
    standby: Incarnation | None = None
    """The incarnation that takes over if the owner dies."""
    standby_runs: bool = True
    """Whether the standby runs beside the owner; if not, it is warm and waits."""
    phase: Phase = Phase.STEADY
    paused: bool = False
    paused_workers: tuple[UnitId, ...] = ()
    """Slots of the owner that stay without tasks while the other slots work."""
    active: int | None = None
    """How many workers of an incarnation get tasks; None: all. The driver chooses the others,
    its spares.
    """
    held_for: TierName | None = None
    """The downstream tier with a large lag for which this tier, which runs, is throttled."""
    admitted: float = 0.0
    """Records that the tier may let in each second while it is throttled."""
    stopped: bool = False
    """Whether the tier should not run, so that every incarnation exits."""
    epoch: int = 0
    """Grows with each write of the controller. `controller/leader` names the writer."""


class Directive(StrEnum):
    """The task of an incarnation."""

    RUN = "run"
    STANDBY = "standby"
    """Be warm and wait."""
    HOLD = "hold"
    """Stop between batches or records, write the receipt, keep session and slots, wait."""
    EXIT = "exit"


def directive(record: OwnerRecord, me: Incarnation) -> Directive:
    """Return the task of incarnation `me`, derived from the owner record alone."""
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
    """`config/wanted/<tier>`: the state of a tier that Airflow, the CLI or a runbook wants."""

    running: bool = False
    paused: bool = False
    paused_workers: tuple[UnitId, ...] = ()
    """Slots to pause alone. Slots of an incarnation that no longer owns the tier are ignored."""
    attempt: int = 0
    """Raised to start a given-up tier again."""
    release: str | None = None
    """The release of the tier's next incarnation.

    Set by the first start and by accepted upgrades.
    """
    partitions: int = STATE_PARTITIONS
    """The partitions of the state of the next incarnation. Set by accepted repartitions."""
    savepoint: StartFrom | None = None
    """The savepoint from which the tier was started last; None: never from one."""
    skipped: dict[str, int] = Field(default_factory=dict)
    """By `stream/partition`: the offset before which a person declared unread records as lost for
    good.
    """
    by: str = ""
    at: float = 0.0


class TierProgress(Frozen):
    """One row of `tier_progress` in PostgreSQL: a driver's figures, rewritten every few seconds.

    They are not in ZooKeeper, because they change too often.
    """

    tier: TierName
    incarnation: Incarnation
    at: float
    rate_in: float = 0.0
    rate_out: float = 0.0
    lag: int = 0
    latency_ms: float | None = None
    """The time from a record's arrival in the pipeline to this tier's output: the median of
    samples.
    """
    slots: dict[str, int] = Field(default_factory=dict)
    """By `host/slot`: the records that the slot's executor has read so far."""
    details: dict[str, Any] = Field(default_factory=dict)
