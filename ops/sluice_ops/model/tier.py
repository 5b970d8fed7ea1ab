"""The declaration of a tier, without the code that transforms records."""

from collections.abc import Iterable
from enum import StrEnum

from pydantic import Field

from sluice_ops.model.ids import TierName
from sluice_ops.model.resources import Frozen, Quantum


class Kind(StrEnum):
    """Where a tier stands in the pipeline."""

    ENTRY = "entry"
    """Reads streams from outside."""
    PROCESSING = "processing"
    """Reads streams and writes streams."""
    OUTBOUND = "outbound"
    """Stands at the end: writes a table, files or a service."""


class Mode(StrEnum):
    """How records flow: one by one in milliseconds, or in micro-batches."""

    REALTIME = "realtime"
    """One by one; for tiers that write streams."""
    BATCH = "batch"
    """In micro-batches."""


class Delivery(StrEnum):
    """The delivery guarantee of a tier's output."""

    AT_MOST_ONCE = "at-most-once"
    """A record that the service may have taken is never sent again, so it may be lost."""
    AT_LEAST_ONCE = "at-least-once"
    """After a failure, a record may be written again, with the same origin."""
    EXACTLY_ONCE = "exactly-once"
    """The table, the files or the topic outside have each record once."""


class Standby(StrEnum):
    """The second incarnation that takes over if the tier's owner dies."""

    NONE = "none"
    """No second incarnation: the tier starts cold."""
    WARM = "warm"
    """A second incarnation waits on other hosts with its JVMs started.

    It only has to start its query.
    """
    HOT = "hot"
    """A second incarnation runs beside the owner on other hosts, with as many slots."""


class TierSpec(Frozen):
    """One tier as it is published to the channel."""

    name: TierName
    kind: Kind
    mode: Mode
    delivery: Delivery
    inputs: tuple[str, ...]
    outputs: tuple[str, ...] = ()
    partitions: int | None = None
    """The partitions of all inputs in Kafka when the tier was published; None: not known then."""
    standby: Standby = Standby.NONE
    state: bool = False
    """Whether the tier holds state in Spark."""
    quantum: Quantum = Quantum()
    driver: Quantum = Quantum(cpu=0.5, memory=1200, threads=1)
    """Resources of the tier's driver process.

    The threads of a light tier's driver are the tasks that run at once.
    """
    light: bool = False
    """Whether the driver does the work itself. Such a tier has no workers."""
    patience: float = 120.0
    """After so long without running, the tier's lag counts as too large. Unit: seconds.

    This is the lowest high watermark of its inputs.
    """
    holds: bool = True
    """Whether the tier's lag throttles the entry. False: its input stream keeps the backlog."""
    release: str | None = None
    """The newest published release, to which this declaration belongs; None: no release yet."""
    distance: int = 0
    """Hops to the pipeline's end. Tiers with 0 are nearest the end and are stopped first."""


class PublishedTier(TierSpec):
    """A tier in `tiers.json`: its declaration, and the columns of its streams and tables."""

    streams: dict[str, dict[str, str] | None] = Field(default_factory=dict)
    """By stream that the tier reads or writes: its columns and their types in Spark's words.

    None: the declaration names no columns.
    """
    tables: dict[str, dict[str, str]] = Field(default_factory=dict)
    """By table that the tier writes: its columns and their SQL types."""


def written_by(tiers: Iterable[TierSpec]) -> set[str]:
    """Return the streams that these tiers write."""
    return {stream for tier in tiers for stream in tier.outputs}


def is_light(spec: TierSpec) -> str:
    """Return that a light tier gets no workers, and how it would get some."""
    return (
        f'tier "{spec.name}" is light: its driver does the work, and it has no workers; to give it workers, '
        f"declare it without light=True, publish it, and run `sluice upgrade {spec.name}`"
    )


def tasks_at_once(spec: TierSpec, workers: int) -> int:
    """Return how many tasks of a tier with so many workers run at once."""
    return spec.driver.threads if spec.light else workers * spec.quantum.threads


def awaits_upgrade(spec: TierSpec, workers: int, release: str | None) -> bool:
    """Return whether an incarnation of `release` runs without workers although its tier is light
    no more.

    It runs on as it is, and the next incarnation gets workers. If its release is the newest one, no
    upgrade is to come.
    """
    return not (workers or spec.light) and release != spec.release


def why_no_spares(spec: TierSpec) -> str | None:
    """Return why a tier cannot have spare workers; None if it can."""
    if spec.light:
        return "it is light, so its driver does the work"
    if spec.state:
        return "it keeps state in its workers, and a spare has none of it"
    if spec.standby is not Standby.NONE:
        return f"its {spec.standby} standby already takes over all its workers"
    return None
