"""Changes that people and runbooks request, their steps, and their results.

A change is a wish, such as `drain h2`. Operations carry it out, one for each step of its runbook.
Each operation has an id of its own, so posting it twice is the same as posting it once.
"""

from collections import Counter
from enum import StrEnum
from itertools import takewhile
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from sluice_ops.model.approval import Asked
from sluice_ops.model.ids import ChangeId, HostName, OperationId, Tenant, TierName, UnitId
from sluice_ops.model.incarnation import Placement
from sluice_ops.model.launch import Launch
from sluice_ops.model.resources import Frozen
from sluice_ops.model.share import Amount

CONTROLLER = "the controller"
"""The requester of the controller's own changes."""
SCALER = "the scaler"
"""The requester of the changes by which the controller follows the scaler's decisions."""
OWN = frozenset({CONTROLLER, SCALER})
"""The requesters of the changes whose steps the controller posts itself."""

DEADLINE_SECONDS = 900
"""How long a change that a person or a runbook requests may take, unless the request says so."""
LONGEST_DEADLINE_SECONDS = 86_400


ChangeKind = Annotated[str, StringConstraints(pattern="^[a-z][a-z-]*$")]
"""The name of a kind of change, such as `drain`: one of
`sluice_ops.planning.changes.kinds.KINDS`.
"""
REBOOT_HOSTS = "reboot-hosts"
"""One batch of a rolling reboot."""
UPGRADE = "upgrade"
DRAIN_TO_EMPTY = "drain-to-empty"
"""A pause of a drain to empty."""
RESUME = "resume"
START = "start"
"""Posted as a dry run only. A write to `config/wanted` starts or stops a tier."""
STOP = "stop"
REPAIR = "repair"
"""Moves drifted tiers to where a plan would place them."""
SCALE = "scale"
SETTLE = "settle"
"""The controller's own change, which brings a tenant to the number that holds."""


class Step(StrEnum):
    """One operation of a change."""

    APPROVAL = "approval"
    """Plan a burst before its instances are launched, and wait if another person has to approve it.
    """
    PREFLIGHT = "preflight"
    """Check, plan, take the maintenance lock. With dry_run: plan only."""
    CORDON = "cordon"
    """Place nothing new on the host. Ends a change of the kind `cordon`."""
    PREPARE = "prepare"
    """Start and warm the next incarnations beside the owners."""
    CUT = "cut"
    """Hand each tier over, or have it release workers, one tier at a time, nearest the end
    first.
    """
    VERIFY = "verify"
    """Check the receipts: the new incarnations continue where the old ones stopped."""
    TRIAL = "trial"
    """Watch the new code for a while."""
    RELEASE = "release"
    """Remove the old incarnations' slots. Ends the change and its lock, unless a reboot follows."""
    REBOOT = "reboot"
    """Reboot the drained host and wait for its agent."""
    HEALTH = "health"
    """Check that the host's agent answers and its capacity is there."""
    CANARY = "canary"
    """Have a worker on each rebooted host process records, and remove the worker again."""
    RETURN = "return"
    """Let the host be used again. Ends the change."""
    PAUSE = "pause"
    RESUME = "resume"
    WRITE_OFF = "write-off"
    """Start units of lost hosts elsewhere, regardless of the brake. Ends the change."""
    DECOMMISSION = "decommission"
    """Remember the host as decommissioned, and wait until it is removed. Ends the change."""
    INJECT = "inject"
    """Inject a fault into a running tier."""
    JUDGE = "judge"
    """Compare what happened after the fault with what is promised. Ends the change."""
    ABORT = "abort"
    """Undo what is not finished, so that the running owners stay. Ends the change."""


BEFORE_BEGIN = frozenset({Step.APPROVAL, Step.PREFLIGHT})
"""The steps before the change begins. If one fails, nothing is left to undo."""


class WorkerMove(Frozen):
    """A single worker and the host to which it moves."""

    tier: TierName
    worker: int
    """Its number in the incarnation."""
    to: HostName


class PartOf(Frozen):
    """The run of several changes, such as a rolling reboot, to which a change belongs."""

    run: str
    """The beginning of the ids of all its changes, also of those of a later try."""
    hosts: tuple[HostName, ...] = ()
    """All hosts of a run that is about hosts."""
    tiers: tuple[TierName, ...] = ()
    """All tiers of a run that is about tiers."""
    earlier_events: tuple[str, ...] = ()
    """The keys of the alerts of events before the run. They stop no rolling reboot."""


class ChangeSpec(Frozen):
    """A change as a person requests it. Fields that a kind does not use are None."""

    kind: ChangeKind
    host: HostName | None = None
    hosts: tuple[HostName, ...] = ()
    """The hosts of a change of several hosts."""
    tier: TierName | None = None
    """A tier. A change of numbers may also name the tenant `batch`."""
    tiers: tuple[TierName, ...] = ()
    """The tiers of a change of several tiers."""
    workers: tuple[UnitId, ...] = ()
    """Single workers to pause or to move, by their slots.

    A pause without a tier pauses only these workers.
    """
    to: str | None = None
    """The new place of a tier: a host's name, `zone:ec2`, `rack:r1`, `label:fast` or `anywhere`."""
    moving: tuple[WorkerMove, ...] = ()
    """The workers that a rebalance moves. Preflight fills them in."""
    k: Amount | None = None
    """The number of slots, each of one quantum. A burst takes no per cent."""
    minimum: Amount | None = None
    """The minimum while the number holds."""
    maximum: Amount | None = None
    """The maximum while the number holds."""
    spare: Amount | None = None
    """The spare workers while the number holds."""
    release: str | None = None
    """The release that a tier should run. Preflight replaces None with the newest release."""
    partitions: int | None = Field(default=None, ge=1)
    """The new number of partitions of a tier's state."""
    shift: str | None = None
    """A shift's name in the site file, such as `night`."""
    fault: str | None = None
    """The fault of a game day, such as `kill-driver`."""
    layer: Literal["autoscaler", "maintenance", "person"] | None = None
    """The layer of a number; None: `person`."""
    until: float | None = None
    """When a number ends; None: it holds until somebody changes it."""
    launch: Launch | None = None
    """The instances that a burst launches. The one who launches them fills it in."""
    part_of: PartOf | None = None
    """The run of several changes to which it belongs; None: it stands alone."""

    @property
    def tenant(self) -> Tenant:
        """The tenant of the number."""
        return Tenant(self.tier or "")

    @property
    def named_hosts(self) -> tuple[HostName, ...]:
        """The host or the hosts that the change names."""
        return self.hosts if self.host is None else (self.host,)

    @property
    def named_tiers(self) -> tuple[TierName, ...]:
        """The tier or the tiers that the change names."""
        return self.tiers if self.tier is None else (self.tier,)


NO_DRIFT = "nothing has drifted"
"""The note of a repair that has nothing to do."""
NO_MOVE = "nothing has to move"
"""The note of a plan without moves."""


class Move(Frozen):
    """One tier's part in a plan: a handover, or a change of its number of workers in place."""

    tier: TierName
    before: Placement | None
    after: Placement
    """The placement of the next incarnation, or of the present one after its change in place."""
    short: int = 0
    """Slots of its share that the tier does not get, because room is short."""
    burst_short: int = 0
    """Slots of its burst that the tier does not get, because room is short on burst hosts."""
    why: str = ""
    """For a repair: the drift."""
    in_place: bool = False
    """Whether the incarnation stays: it keeps its first workers, releases the others, and gets
    further ones (decisions 41, 65 and 70).
    """

    @property
    def kept(self) -> int:
        """The number of the first workers that stay."""
        before = () if self.before is None or not self.in_place else self.before.slots
        pairs = zip(before, self.after.slots, strict=False)
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))

    @property
    def released(self) -> int:
        """The number of workers that are released in place."""
        return len(self.before.slots) - self.kept if self.in_place and self.before is not None else 0

    @property
    def joining(self) -> int:
        """The number of workers that are added in place."""
        return len(self.after.slots) - self.kept if self.in_place else 0

    @property
    def moved(self) -> int:
        """The number of units that are on another host after the move."""
        if self.before is None:
            return 1 + len(self.after.slots)
        gone = Counter(self.after.slots) - Counter(self.before.slots)
        return gone.total() + (self.after.driver != self.before.driver)


class Plan(Frozen):
    """The moves of a change, the slots of batch, notes, and predicted times."""

    moves: tuple[Move, ...] = ()
    """In the order of the cuts: nearest the pipeline's end first."""
    batch_slots: tuple[HostName, ...] = ()
    """The host of each slot of the tenant `batch` after the change."""
    batch_kept: tuple[HostName, ...] = ()
    """The hosts of batch's present slots that stay while tiers move."""
    notes: tuple[str, ...] = ()
    predicted_seconds: float = 0.0
    predicted_gap_seconds: float = 0.0
    unpredicted: str = ""
    """The part of the time that is not in `predicted_seconds`, and why; empty: none."""

    @property
    def handovers(self) -> tuple[Move, ...]:
        """The moves for which a new incarnation is started."""
        return tuple(move for move in self.moves if not move.in_place)


class ChangeState(StrEnum):
    """The state of a change."""

    WAITING = "waiting"
    """It waits for the approval of another person, has no lock, and has moved nothing."""
    ACTIVE = "active"
    DONE = "done"
    ABORTED = "aborted"


class ChangeRecord(Frozen):
    """`changes/<id>`: a change that waits for approval, is active, or has ended."""

    id: ChangeId
    spec: ChangeSpec
    plan: Plan
    state: ChangeState
    by: str
    started_at: float
    ended_at: float | None = None
    incarnations: dict[TierName, int] = Field(default_factory=dict)
    """By tier: the incarnation that the change started, or the owner that it changed in place."""
    receipts: dict[TierName, dict[str, Any]] = Field(default_factory=dict)
    canaries: dict[TierName, int] = Field(default_factory=dict)
    """By tier: the incarnation with a worker on rebooted hosts, dropped when these are proved."""
    proofs: dict[HostName, str] = Field(default_factory=dict)
    """By rebooted host: the sentence on the worker that has processed records there."""
    took: dict[Step, float] = Field(default_factory=dict)
    """How long each step has taken so far. Unit: seconds."""
    stepped_at: float = 0.0
    """When a step last got its result.

    The controller aborts a change without progress after a while.
    """
    deadline_seconds: float | None = None
    """How long the change may take from `started_at` on; None: not known. Unit: seconds.

    After that, the requester has given up.
    """
    abort_predicted_seconds: float | None = None
    """The predicted time of the abort; `took` has the real one. Unit: seconds.

    None: no abort was requested, or no abort had been timed by then.
    """
    asked: Asked | None = None
    """The approval that the change needed; None: it needed none."""

    @property
    def never_began(self) -> bool:
        """Whether the change waits for approval, or ended without one."""
        return self.asked is not None and not self.asked.began


class Operation(Frozen):
    """`operations/<id>`: one posted step."""

    id: OperationId
    change: ChangeId
    step: Step
    spec: ChangeSpec
    by: str
    """The requester: `airflow:drain_host/manual__1`, `cli:anna`."""
    person: str = ""
    """The person who triggered the run in Airflow; empty: nobody, or `by` names the person."""
    posted_at: float
    deadline_seconds: float = 600.0
    dry_run: bool = False
    reason: str = ""
    """Why the controller posted it; empty for a request of a person or a runbook."""


class JournalEntry(Frozen):
    """One line of `operations/<id>/journal/`: an action of the controller, in words for an
    operator.
    """

    at: float
    sentence: str


class Result(Frozen):
    """`operations/<id>/result`: written once, when the step has ended."""

    ok: bool
    sentence: str
    """The event, the platform's reaction and, after a failure, the next step."""
    finished_at: float
    details: dict[str, Any] = Field(default_factory=dict)


class MaintenanceLock(Frozen):
    """`changes/lock`: the change that may move tiers now.

    The node is absent while there is none.
    """

    change: ChangeId
    by: str
    since: float


class EpochRecord(Frozen):
    """`controller/epoch`: raised by each new leader.

    Each write of a leader checks the epoch, so an old leader can no longer write.
    """

    epoch: int
    leader: str


def change_of_step(operation: OperationId) -> ChangeId:
    """Return the change of a step, from the step's id.

    `sluice_ops.operations.requests.operation_id` makes such an id.
    """
    return ChangeId(operation.rpartition(".")[0])
