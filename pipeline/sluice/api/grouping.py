"""How the records of a stream are spread over its partitions, and so over the workers of the tiers that read it. Pure.

Whatever the grouping, the partition is a function of the record: a replay takes the way that the record took (decision record 0002).
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Local:
    """Each record stays in the partition it came from: no shuffle, and the order of the input is kept."""


@dataclass(frozen=True)
class Shuffle:
    """Evenly, whatever the records are."""


@dataclass(frozen=True, init=False)
class Fields:
    """Equal values of these columns stay together, in order."""

    columns: tuple[str, ...]

    def __init__(self, *columns: str) -> None:
        """Name the columns."""
        object.__setattr__(self, "columns", columns)


@dataclass(frozen=True)
class All:
    """Every partition gets a copy of each record, so that every worker sees it. Copies are records of their own further on."""


@dataclass(frozen=True)
class Global:
    """All records in one partition, so that one worker sees them all, in order."""


@dataclass(frozen=True)
class Direct:
    """The transform says where: a column holds the number of the partition."""

    column: str


Grouping = Local | Shuffle | Fields | All | Global | Direct


def columns(grouping: Grouping) -> tuple[str, ...]:
    """Return the columns that a transform has to return for this grouping."""
    match grouping:
        case Fields(names):
            return names
        case Direct(name):
            return (name,)
        case _:
            return ()
