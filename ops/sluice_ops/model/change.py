"""Changes that people and runbooks ask for, the steps in which they are carried out, and what becomes of them.

A change is what is wanted (`drain h2`). It is carried out by operations, one for each step of its runbook, posted under ids of their own:
posting one twice is the same as posting it once.
"""

from collections import Counter
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from sluice_ops.model.ids import ChangeId, HostName, OperationId, Tenant, TierName, UnitId
from sluice_ops.model.incarnation import Placement
from sluice_ops.model.resources import Frozen
from sluice_ops.model.share import Amount

CONTROLLER = "the controller"
"""Who has asked for the controller's own changes."""


ChangeKind = Annotated[str, StringConstraints(pattern="^[a-z][a-z-]*$")]
"""The name of a kind of change, such as `drain`: one of `sluice_ops.planning.changes.kinds.KINDS`."""
UPGRADE = "upgrade"
START = "start"
"""Posted as a dry run only: `config/wanted` says that a tier is to run, or to stop."""
STOP = "stop"
REPAIR = "repair"
"""Move what has drifted to where a plan would have it."""
SETTLE = "settle"
"""The controller's own change: bring a tenant to the number that holds."""


class Step(StrEnum):
    """One operation of a change."""

    PREFLIGHT = "preflight"
    """Check, plan, take the maintenance lock. With dry_run: plan only."""
    CORDON = "cordon"
    """Nothing new is placed on the host; ends the change when it was for that alone."""
    PREPARE = "prepare"
    """Start and warm the next incarnations beside the owners."""
    CUT = "cut"
    """Hand each tier over, or have it let workers go, nearest the pipeline's end first, one at a time."""
    VERIFY = "verify"
    """Check the receipts: where the old ones stopped is where the new ones go on."""
    TRIAL = "trial"
    """See how the new code does, for a while."""
    RELEASE = "release"
    """Take the old incarnations' slots away; end the change and its lock, unless a reboot follows."""
    REBOOT = "reboot"
    """Reboot the drained host and wait for its agent."""
    HEALTH = "health"
    """Check that the host's agent answers and its capacity is there."""
    RETURN = "return"
    """Let the host be used again; ends the change."""
    PAUSE = "pause"
    RESUME = "resume"
    WRITE_OFF = "write-off"
    """Have what is on lost hosts go on elsewhere, whatever the brake says; ends the change."""
    ABORT = "abort"
    """Undo what is not finished: back to the owners that run; ends the change."""


class ChangeSpec(Frozen):
    """What is wanted, as a person says it. Fields that a kind does not use stay None."""

    kind: ChangeKind
    host: HostName | None = None
    tier: TierName | None = None
    """A tier; a change of numbers may also name the tenant `batch`."""
    workers: tuple[UnitId, ...] = ()
    """Single workers to be paused, by their slots; then a pause without a tier is of them alone."""
    to: str | None = None
    """Where a tier is to go: a host's name, `zone:ec2`, or `label:fast`."""
    k: Amount | None = None
    """How many slots, each of one quantum; a burst takes a number only."""
    minimum: Amount | None = None
    """With a number of slots: from now on never fewer."""
    maximum: Amount | None = None
    """Likewise: never more."""
    release: str | None = None
    """The release that a tier is to run; preflight puts the newest in the place of None."""
    partitions: int | None = Field(default=None, ge=1)
    """Over how many partitions the state of a tier is to be spread."""
    shift: str | None = None
    """A shift's name in the site file: `night` or `day`."""
    layer: Literal["autoscaler", "maintenance", "person"] | None = None
    """Whose word a number is; None: a person's."""
    until: float | None = None
    """Until when a number is to hold; None: until somebody changes it."""

    @property
    def tenant(self) -> Tenant:
        """Whose number it is about."""
        return Tenant(self.tier or "")


NO_DRIFT = "nothing has drifted"
"""What the plan of a repair says then."""


class Move(Frozen):
    """One tier's part in a plan: the placement of its next incarnation, or what it keeps where it runs."""

    tier: TierName
    before: Placement | None
    after: Placement
    short: int = 0
    """Slots that it will have fewer than its share, for want of room."""
    why: str = ""
    """What had drifted, for a repair."""
    in_place: bool = False
    """Its incarnation stays, and lets its last workers go (decision record 0041)."""

    @property
    def let_go(self) -> int:
        """How many workers it lets go where it runs."""
        return (
            len(self.before.slots) - len(self.after.slots) if self.in_place and self.before is not None else 0
        )

    @property
    def moved(self) -> int:
        """How many units are somewhere else after it than before."""
        if self.before is None:
            return 1 + len(self.after.slots)
        gone = Counter(self.after.slots) - Counter(self.before.slots)
        return gone.total() + (self.after.driver != self.before.driver)


class Plan(Frozen):
    """The pure result `from what is to what is wanted`."""

    moves: tuple[Move, ...] = ()
    """In the order of the cuts: nearest the pipeline's end first."""
    batch_slots: tuple[HostName, ...] = ()
    """Slots of the tenant `batch` after the change, one host for each."""
    batch_kept: tuple[HostName, ...] = ()
    """Of the slots that batch has now, those that stay while tiers move."""
    notes: tuple[str, ...] = ()
    predicted_seconds: float = 0.0
    predicted_gap_seconds: float = 0.0
    unpredicted: str = ""
    """What of its time is not in `predicted_seconds`, and why; empty where all of it is."""

    @property
    def hand_overs(self) -> tuple[Move, ...]:
        """The moves for which a new incarnation is started."""
        return tuple(move for move in self.moves if not move.in_place)


class ChangeState(StrEnum):
    """Where a change is."""

    ACTIVE = "active"
    DONE = "done"
    ABORTED = "aborted"


class ChangeRecord(Frozen):
    """`changes/<id>`: a change under way or ended."""

    id: ChangeId
    spec: ChangeSpec
    plan: Plan
    state: ChangeState
    by: str
    started_at: float
    ended_at: float | None = None
    incarnations: dict[TierName, int] = Field(default_factory=dict)
    """The incarnation of each tier that it moves: the one that it has started, or the owner that has let its workers go."""
    receipts: dict[TierName, dict[str, Any]] = Field(default_factory=dict)
    took: dict[Step, float] = Field(default_factory=dict)
    """How long each of its steps has taken so far. Unit: seconds."""
    stepped_at: float = 0.0
    """When one of its steps last got its result: a change that nobody goes on with is aborted after a while."""
    deadline_seconds: float | None = None
    """How long it may take from `started_at` on, as who asked for it has said: then whoever carries it out has given up. None: not said."""
    abort_predicted_seconds: float | None = None
    """How long its abort was predicted to take; `took` says how long it did. None: there was none, or none had been timed by then."""


class Operation(Frozen):
    """`operations/<id>`: one posted step."""

    id: OperationId
    change: ChangeId
    step: Step
    spec: ChangeSpec
    by: str
    """Who asked: `airflow:drain_host/manual__1`, `cli:anna`."""
    posted_at: float
    deadline_seconds: float = 600.0
    dry_run: bool = False


class JournalEntry(Frozen):
    """One line of `operations/<id>/journal/`: what the controller did, readable by an operator."""

    at: float
    sentence: str


class Result(Frozen):
    """`operations/<id>/result`: written once, when the step has ended."""

    ok: bool
    sentence: str
    """What happened, what the platform did, and, when it failed, what to do."""
    finished_at: float
    details: dict[str, Any] = Field(default_factory=dict)


class MaintenanceLock(Frozen):
    """`changes/lock`: which change may move tiers now. There is none while nothing is being changed."""

    change: ChangeId
    by: str
    since: float


class EpochRecord(Frozen):
    """`controller/epoch`: raised by each new leader; every write of a leader is guarded by it, so an old one can write no more."""

    epoch: int
    leader: str


def change_of_step(operation: OperationId) -> ChangeId:
    """Return the change that a step is of, by the step's id (`sluice_ops.operations.requests.operation_id`)."""
    return ChangeId(operation.rpartition(".")[0])
