"""What the control plane knows of a tier: its declaration, without the code that transforms records."""

from enum import StrEnum

from sluice_ops.model.ids import TierName
from sluice_ops.model.resources import Frozen, Quantum


class Kind(StrEnum):
    """Where a tier stands in the pipeline."""

    ENTRY = "entry"
    PROCESSING = "processing"
    OUTBOUND = "outbound"


class Mode(StrEnum):
    """How its records flow: one by one in milliseconds, or in micro-batches."""

    REALTIME = "realtime"
    BATCH = "batch"


class Delivery(StrEnum):
    """What its sink guarantees."""

    AT_MOST_ONCE = "at-most-once"
    """A record that may have been taken is never sent again, so it may be lost."""
    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"


class Standby(StrEnum):
    """What waits for the tier's owner to die, besides the next cold start."""

    NONE = "none"
    WARM = "warm"
    """A second incarnation is ready on other hosts and waits: the owner's death costs the start of a query, not of its JVMs."""
    HOT = "hot"
    """A second incarnation runs beside the owner all the time, on other hosts, with as many slots."""


class TierSpec(Frozen):
    """One tier as it is published to the channel."""

    name: TierName
    kind: Kind
    mode: Mode
    delivery: Delivery
    inputs: tuple[str, ...]
    outputs: tuple[str, ...] = ()
    partitions: int | None = None
    """Of its inputs together, as Kafka had them when it was published; None: by an older version, which did not ask."""
    standby: Standby = Standby.NONE
    state: bool = False
    """It holds state in Spark."""
    quantum: Quantum = Quantum()
    driver: Quantum = Quantum(cpu=0.5, memory=1200, threads=1)
    """Resources of the tier's driver process."""
    patience: float = 120.0
    """When it has not run for so long, it counts as behind too far: the lowest high watermark of its inputs. Unit: seconds."""
    release: str | None = None
    """The release that was published last, of which this declaration is; None before there was any."""
    distance: int = 0
    """Hops to the pipeline's end: 0 is nearest the end, and is stopped first."""
