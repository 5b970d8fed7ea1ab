"""A release: an immutable copy of a pipeline's code, and what others rely on of each of its tiers.

Written by `sluice.commands.publish` beside the code and to the channel; the controller, which has no Spark, compares two of them.
"""

import re

from pydantic import Field

from sluice_ops.model.ids import TierName
from sluice_ops.model.resources import Frozen


class StreamShape(Frozen):
    """A stream as a tier reads or writes it."""

    name: str
    columns: dict[str, str] | None = None
    """Types by name, as Spark calls them. None: records from outside, as they are."""
    grouping: str = "Local()"


class SinkShape(Frozen):
    """What a tier at the end writes into."""

    kind: str
    name: str
    columns: dict[str, str]
    """SQL types by name."""
    key: tuple[str, ...] = ()


class StateShape(Frozen):
    """What a tier holds in Spark."""

    lateness: int
    time: str | None
    operators: tuple[str, ...] = ()
    """What each operator of the analysed plan holds: keys, windows, aggregates, conditions."""


class TierShape(Frozen):
    """One tier's ties to everything else."""

    inputs: tuple[StreamShape, ...]
    outputs: tuple[StreamShape, ...] = ()
    sink: SinkShape | None = None
    state: StateShape | None = None


class Release(Frozen):
    """`releases/<name>`, and `release.json` beside the code: never changed once it is there."""

    name: str
    """`r7-3f9a2c1b`: a growing number, and the first digits of the hash."""
    module: str
    """The Python module that it is a copy of."""
    digest: str
    """The hash of its files. A driver goes by the one in the channel, which only the publisher writes, and imports no other files."""
    published_at: float
    tiers: dict[TierName, TierShape] = Field(default_factory=dict)

    @property
    def number(self) -> int:
        """Tell it from earlier and later ones."""
        return number_of(self.name)


NAME = re.compile(r"r[1-9][0-9]{0,8}-[0-9a-f]{8}")
DIGITS = 8


def name_of(number: int, digest: str) -> str:
    """Return what a release of this number and digest is called."""
    return f"r{number}-{digest[:DIGITS]}"


def is_named(name: str, digest: str) -> bool:
    """Tell whether a release's name is a plain one, and that of its digest."""
    return NAME.fullmatch(name) is not None and name.endswith(f"-{digest[:DIGITS]}")


def number_of(name: str) -> int:
    """Return the number in a release's name."""
    return int(name[1:].partition("-")[0])
