"""Chooses the checkpoint from which a run of a tier with state begins, and its files (decision
record 0016). Pure.

Names are relative to the folder of one run's checkpoint, in Spark's layout: `offsets/<batch>`,
`commits/<batch>`, and for each store of the state
`state/<operator>/<partition>[/<store>]/<version>.changelog` or `.zip`, a snapshot. A batch's
version is its number plus one.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

LOGGED = re.compile(r"(?P<log>offsets|commits)/(?P<batch>\d+)")
VERSIONED = re.compile(r"(?P<store>state/.+)/(?P<version>\d+)\.(?P<kind>changelog|zip)")
STORE = re.compile(r"state/\d+/(?P<partition>\d+)/")
QUERY = "metadata"
"""The file with the id of the run's query; it is not copied into other checkpoints."""


@dataclass(frozen=True)
class Committed:
    """A batch that a run's query has committed."""

    run: str
    """The folder of the run's checkpoint."""
    batch: int
    """Spark's number of the batch, not the ledger's."""
    ends: Mapping[str, int]
    """Where it ends, by `stream/partition`."""
    partitions: int
    """The number of partitions of its state."""


@dataclass(frozen=True)
class Candidate:
    """A committed batch that ends where a batch of the ledger ends, so a run may begin from it."""

    committed: Committed
    number: int
    """The ledger's number of the batch."""


def manifest(files: Iterable[str], batch: int, partitions: int) -> tuple[str, ...] | None:
    """Return the files of the checkpoint as of a committed batch, the commits last; None if one is
    missing.
    """
    chosen = sorted(
        (name for name in files if _is_part(name, batch, partitions)),
        key=lambda name: (name.startswith("commits/"), name),
    )
    versions: dict[str, dict[str, set[int]]] = {}
    for name in chosen:
        if match := VERSIONED.fullmatch(name):
            kinds = versions.setdefault(match["store"], {"zip": set(), "changelog": set()})
            kinds[match["kind"]].add(int(match["version"]))
    logged = {f"offsets/{batch}", f"commits/{batch}"} <= set(chosen)
    unbroken = all(
        set(range(max(kinds["zip"], default=0) + 1, batch + 2)) <= kinds["changelog"]
        for kinds in versions.values()
    )
    return tuple(chosen) if logged and versions and unbroken and _numbered(versions, partitions) else None


def _is_part(name: str, batch: int, partitions: int) -> bool:
    """Tell whether a file belongs to a checkpoint as of a batch; a file without a number belongs to
    each.
    """
    if (store := STORE.match(name)) and int(store["partition"]) >= partitions:
        return False  # of earlier batches, whose state had more partitions
    if match := LOGGED.fullmatch(name):
        return int(match["batch"]) <= batch
    if match := VERSIONED.fullmatch(name):
        return int(match["version"]) <= batch + 1
    return name != QUERY


def _numbered(stores: Iterable[str], partitions: int) -> bool:
    """Tell whether all operators are there, each with all partitions."""
    operators: dict[int, set[int]] = {}
    for store in stores:
        _, operator, partition, *_ = store.split("/")
        operators.setdefault(int(operator), set()).add(int(partition))
    complete = all(numbers == set(range(partitions)) for numbers in operators.values())
    return complete and set(operators) == set(range(len(operators)))


def candidates(
    endings: Sequence[tuple[int, Mapping[str, int]]], committed: Iterable[Committed]
) -> list[Candidate]:
    """Return the committed batches that end exactly where one of the ledger's ends, the furthest
    first.

    `endings` are the numbers and ends of the ledger's batches. Of runs that committed the same
    batch, the last by name comes first.
    """
    numbers = {_key(ends): number for number, ends in endings}
    in_ledger = [
        Candidate(batch, numbers[_key(batch.ends)]) for batch in committed if _key(batch.ends) in numbers
    ]
    return sorted(
        in_ledger,
        key=lambda candidate: (candidate.number, candidate.committed.run, candidate.committed.batch),
        reverse=True,
    )


def _key(ends: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(ends.items()))
