"""Groupings: the rules that spread a stream's records over its partitions, and so over the
workers of the tiers that read the stream. Pure.

With every grouping, the partition is a function of the record, so a replay takes the same path as
the original (decision 10).
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Local:
    """Each record keeps its input's partition: no shuffle, and the order of the input is kept."""


@dataclass(frozen=True)
class Shuffle:
    """Records are spread evenly, whatever their content."""


@dataclass(frozen=True, init=False)
class Fields:
    """Records with equal values of these columns share a partition and keep their order."""

    columns: tuple[str, ...]

    def __init__(self, *columns: str) -> None:
        object.__setattr__(self, "columns", columns)


@dataclass(frozen=True)
class All:
    """Every partition gets a copy of each record, so every worker gets the record.

    In later tiers, each copy is a record with its own origin.
    """


@dataclass(frozen=True)
class Global:
    """All records go to one partition, so one worker gets all records, in order."""


@dataclass(frozen=True)
class Direct:
    """The transform chooses: this column holds the number of the partition."""

    column: str


Grouping = Local | Shuffle | Fields | All | Global | Direct
"""The rule of a stream."""


def columns(grouping: Grouping) -> tuple[str, ...]:
    """Return the columns that a transform must return for this grouping."""
    match grouping:
        case Fields(names):
            return names
        case Direct(name):
            return (name,)
        case _:
            return ()
