"""Which checkpoint of a tier with state a run begins from, and which files it consists of (decision record 0016). Pure.

Names are relative to the folder of one run's checkpoint, as Spark lays it out: `offsets/<batch>`, `commits/<batch>`, and for each store of
the state `state/<operator>/<partition>[/<store>]/<version>.changelog` or `.zip`, a snapshot. A batch's version is its number and one.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

LOGGED = re.compile(r"(?P<log>offsets|commits)/(?P<batch>\d+)")
VERSIONED = re.compile(r"(?P<store>state/.+)/(?P<version>\d+)\.(?P<kind>changelog|zip)")
STORE = re.compile(r"state/\d+/(?P<partition>\d+)/")
QUERY = "metadata"
"""Holds the id of the run's query, and is a part of no other's checkpoint."""


@dataclass(frozen=True)
class Committed:
    """A batch that a run's query has committed."""

    run: str
    """The folder of the run's checkpoint."""
    batch: int
    """Spark's number of it, not the ledger's."""
    ends: Mapping[str, int]
    """Where it ends, by `stream/partition`."""
    partitions: int
    """Over how many its state is spread."""


@dataclass(frozen=True)
class Vouched:
    """A committed batch that is the ledger's too."""

    committed: Committed
    number: int
    """The ledger's number of it."""


def manifest(files: Iterable[str], batch: int, partitions: int) -> tuple[str, ...] | None:
    """Return the files that make up the checkpoint as of a committed batch, the commits last; None where one is missing."""
    chosen = sorted(
        (name for name in files if _is_part(name, batch, partitions)),
        key=lambda name: (name.startswith("commits/"), name),
    )
    versions: dict[str, dict[str, set[int]]] = {}
    for name in chosen:
        if found := VERSIONED.fullmatch(name):
            kinds = versions.setdefault(found["store"], {"zip": set(), "changelog": set()})
            kinds[found["kind"]].add(int(found["version"]))
    logged = {f"offsets/{batch}", f"commits/{batch}"} <= set(chosen)
    unbroken = all(
        set(range(max(kinds["zip"], default=0) + 1, batch + 2)) <= kinds["changelog"]
        for kinds in versions.values()
    )
    return tuple(chosen) if logged and versions and unbroken and _numbered(versions, partitions) else None


def _is_part(name: str, batch: int, partitions: int) -> bool:
    """Tell whether a file belongs to a checkpoint as of a batch; what has no number belongs to any."""
    if (store := STORE.match(name)) and int(store["partition"]) >= partitions:
        return False  # of the batches before, where there were more of them
    if found := LOGGED.fullmatch(name):
        return int(found["batch"]) <= batch
    if found := VERSIONED.fullmatch(name):
        return int(found["version"]) <= batch + 1
    return name != QUERY


def _numbered(stores: Iterable[str], partitions: int) -> bool:
    """Tell whether no operator lacks a partition, nor the state an operator."""
    operators: dict[int, set[int]] = {}
    for store in stores:
        _, operator, partition, *_ = store.split("/")
        operators.setdefault(int(operator), set()).add(int(partition))
    whole = all(there == set(range(partitions)) for there in operators.values())
    return whole and set(operators) == set(range(len(operators)))


def vouched(
    endings: Sequence[tuple[int, Mapping[str, int]]], committed: Iterable[Committed]
) -> list[Vouched]:
    """Return the batches that end exactly where one of the ledger's does, the one that is furthest first.

    `endings` are the ledger's batches with where they end. Of runs that committed the same one, the last by name comes first.
    """
    numbers = {_key(ends): number for number, ends in endings}
    found = [Vouched(each, numbers[_key(each.ends)]) for each in committed if _key(each.ends) in numbers]
    return sorted(
        found, key=lambda each: (each.number, each.committed.run, each.committed.batch), reverse=True
    )


def _key(ends: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(ends.items()))
