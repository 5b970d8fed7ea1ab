"""A drain to empty: what it has to do, how far it is, and its receipt."""

from pydantic import Field

from sluice_ops.model.change import ChangeKind
from sluice_ops.model.ids import TierName
from sluice_ops.model.resources import Frozen
from sluice_ops.model.run_node import RunNode


class InputReceipt(Frozen):
    """How far a tier has read one input stream."""

    stream: str
    records: int
    """The records that were ever written to the stream, by its ends."""
    read: int
    """The records before the positions at which the tier stopped."""
    outside: bool
    """Whether senders outside the pipeline write the stream. Records that the tier has not read are
    then not in flight.
    """

    @property
    def left(self) -> int:
        """The records that the tier has not read."""
        return self.records - self.read


class TierReceipt(Frozen):
    """The audit's numbers of a tier when the pipeline was empty."""

    tier: TierName
    inputs: tuple[InputReceipt, ...]
    outputs: dict[str, int] = Field(default_factory=dict)
    """Output stream → the records that were ever written to it."""
    quarantined: int = 0
    """The records in the quarantine streams of its inputs, which tiers with one input share."""
    sink: int | None = None
    """The rows that the tier has written to its sink; None: it writes streams."""
    once: int = 0
    """The input records that came out, went to quarantine or were filtered, as the audit counts."""
    lost: int = 0
    """The lost records of the tier that nobody has settled."""
    verdict: str = ""
    """The audit's verdict in words; empty: the audit has seen no record of the tier."""

    @property
    def in_flight(self) -> int:
        """The records of other tiers that the tier has not read."""
        return sum(each.left for each in self.inputs if not each.outside)


class DrainReceipt(Frozen):
    """The proof that nothing was in flight."""

    at: float
    tiers: tuple[TierReceipt, ...]
    """In the order of the pauses."""

    @property
    def in_flight(self) -> int:
        """The records between the tiers."""
        return sum(tier.in_flight for tier in self.tiers)


class PipelineDrain(RunNode):
    """`drains/pipeline`: a drain to empty that is under way, or has ended."""

    deadline_seconds: float
    until: float | None = None
    """When it has to be empty; None while the first tiers are not paused yet. Wall clock."""
    kind: ChangeKind | None = None
    """The kind of the last change, which may be under way; None: its end was written down."""
    tiers: tuple[TierName, ...] = ()
    """The tiers that this change pauses or resumes."""
    paused: tuple[TierName, ...] = ()
    """The tiers that this drain has paused, in order."""
    looks: tuple[float, ...] = ()
    """The audit's looks since the last change ended. After two whole ones, the ends are true."""
    failed: str = ""
    """Why the pauses are taken back; empty while none is."""
    ended: bool = False
    """Whether nothing is left to do; the next run then begins another one."""
    receipt: DrainReceipt | None = None
