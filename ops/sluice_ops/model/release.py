"""Release: an immutable copy of a pipeline's code, with the shape of each tier.

A tier's shape is all that other tiers, its table and its state rely on. `sluice.commands.publish`
writes a release beside the code and to the channel. The controller, which has no Spark, compares
the shapes of two releases.
"""

import re
from collections.abc import Mapping

from pydantic import Field

from sluice_ops.model.ids import TierName
from sluice_ops.model.resources import Frozen


class StreamShape(Frozen):
    """A stream as a tier reads or writes it."""

    name: str
    columns: dict[str, str] | None = None
    """By column: the type in Spark's words. None: raw records from outside."""
    grouping: str = "Local()"
    format: str | None = None
    """`Avro`, `Protobuf` or `Bytes`; None: JSON, or text from outside."""


class SinkShape(Frozen):
    """The sink into which an outbound tier writes."""

    kind: str
    name: str
    columns: dict[str, str]
    """By column: the SQL type."""
    key: tuple[str, ...] = ()


VARIABLE = "variable "
"""How the description of a variable of a tier's own state begins."""


def comparable(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the parts of two states that can be compared: variables only if both have some.

    Releases of former versions have none.
    """
    if _variables(one) and _variables(other):
        return one, other
    return one[: len(one) - _variables(one)], other[: len(other) - _variables(other)]


def same_state(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Tell whether the state of one fits the code of the other."""
    before, after = comparable(one, other)
    return before == after


def _variables(parts: tuple[str, ...]) -> int:
    """Return the number of variables, which come last."""
    return sum(part.startswith(VARIABLE) for part in parts)


class StateShape(Frozen):
    """The state that a tier holds in Spark."""

    lateness: int
    time: str | None
    operators: tuple[str, ...] = ()
    """For each operator of the analysed plan: its keys, windows, aggregates, conditions.

    After them, the variables of the tier's own state, if they are known (`comparable`).
    """


class TierShape(Frozen):
    """All of a tier that other tiers, its table and its state rely on."""

    inputs: tuple[StreamShape, ...]
    outputs: tuple[StreamShape, ...] = ()
    sink: SinkShape | None = None
    """The tier's sink, or the first one of several."""
    more_sinks: tuple[SinkShape, ...] = ()
    state: StateShape | None = None
    light: bool = False
    """Whether the driver does the work itself, without workers."""

    @property
    def sinks(self) -> tuple[SinkShape, ...]:
        """All sinks of the tier."""
        return () if self.sink is None else (self.sink, *self.more_sinks)


class Contents(Frozen):
    """What is in the environment of a release: packages and jars that Sluice itself lacks."""

    packages: dict[str, str]
    """By name: the version."""
    jars: tuple[str, ...]
    """As `group:artifact:version`."""
    bytes: int
    python: str | None = None
    """The Python and processor that compiled packages need; None: no package is compiled."""


class Release(Frozen):
    """`releases/<name>`, and `release.json` beside the code. Written once, never changed."""

    name: str
    """`r7-3f9a2c1b`: a growing number, and the first digits of the hash."""
    module: str
    """The Python module of which the release is a copy."""
    digest: str
    """The hash of the release's files, those of its environment among them.

    A driver compares its files with the hash in the channel, which only the publisher writes, and
    imports no other files.
    """
    published_at: float
    tiers: dict[TierName, TierShape] = Field(default_factory=dict)
    schemas: dict[str, int] = Field(default_factory=dict)
    """By stream that a tier writes in Avro or Protobuf: the id of its schema in the registry."""
    environment: Contents | None = None
    """None: the release has no environment of its own."""

    @property
    def number(self) -> int:
        """The growing number in the name."""
        return number_of(self.name)


def is_light_in(releases: Mapping[str, Release], release: str | None, tier: TierName) -> bool:
    """Return whether a tier that is declared light is light in a release, too.

    So it is in a release that is unknown.
    """
    known = releases.get(release or "")
    shape = None if known is None else known.tiers.get(tier)
    return shape is None or shape.light


NAME = re.compile(r"r[1-9][0-9]{0,8}-[0-9a-f]{8}")
DIGITS = 8


def name_of(number: int, digest: str) -> str:
    """Return the name of a release."""
    return f"r{number}-{digest[:DIGITS]}"


def is_named(name: str, digest: str) -> bool:
    """Return whether a release's name is well formed and fits its digest."""
    return NAME.fullmatch(name) is not None and name.endswith(f"-{digest[:DIGITS]}")


def number_of(name: str) -> int:
    """Return the number in a release's name."""
    return int(name[1:].partition("-")[0])
