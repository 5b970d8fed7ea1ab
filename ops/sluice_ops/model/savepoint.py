"""Savepoints: named copies of a tier's state, each as of one batch of the ledger. Pure.

`sluice.commands.savepoint` takes them. The driver of a tier that was started from one reads it.
"""

import re
from collections.abc import Mapping

from sluice_ops.model.compatibility import REBUILT, incompatibilities
from sluice_ops.model.ids import TierName
from sluice_ops.model.release import TierShape
from sluice_ops.model.resources import Frozen

NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


class StartFrom(Frozen):
    """A start from a savepoint, as an operator requested it."""

    name: str
    """The savepoint's name."""
    after: int
    """The ledger's last batch at the request: later batches come from this start."""
    ends: dict[str, int]
    """The position in each stream at which batch `after` ends.

    If the ledger lacks that batch, the ledger began anew, and the start has no effect.
    """

    @property
    def origin(self) -> str:
        """The name of the start, which all checkpoints that come from it carry."""
        return f"{self.name} after {self.after}"


class Savepoint(Frozen):
    """`savepoints/<name>/about` in a tier's checkpoints, written when the copy is complete."""

    name: str
    tier: TierName
    taken_at: float
    """Unit: epoch seconds."""
    by: str
    release: str | None
    """The release that made the state; None: unpublished code."""
    shape: TierShape | None
    """The tier's shape in that release; None if it is unknown."""
    number: int
    """The ledger's number of the batch."""
    batch: int
    """Spark's number of the batch."""
    ends: dict[str, int]
    """Where the batch ends, by `stream/partition`: the first records after the savepoint."""
    streams: dict[str, str]
    """The ids of the topics to which the ends belong, as far as known."""
    partitions: int
    """The number of partitions of the state."""


def records_since(savepoint: Savepoint, ends: Mapping[str, int]) -> int:
    """Return how many records the ledger, which ends at `ends`, has after a savepoint."""
    return sum(end - savepoint.ends.get(place, 0) for place, end in ends.items())


def why_unusable(
    savepoint: Savepoint,
    ledger: Mapping[str, int] | None,
    streams: Mapping[str, str],
    oldest: Mapping[str, int],
) -> str | None:
    """Return why a tier cannot continue from a savepoint without a loss; None if it can.

    `ledger` are the ends of the savepoint's batch in the ledger, None without that batch. `streams`
    are the present topic ids of the inputs, `oldest` their oldest offsets.
    """
    if ledger is None or dict(ledger) != savepoint.ends:
        return (
            f"the ledger has no batch {savepoint.number} any more that ends where the savepoint does, "
            "so nothing tells which records were counted since"
        )
    if other := sorted(
        stream for stream, topic in streams.items() if savepoint.streams.get(stream, topic) != topic
    ):
        return f"{', '.join(other)} was deleted and recreated since: its offsets are those of other records"
    # a partition without an end was added after the savepoint, so all its records came later
    gone = [
        f"{place}: offsets {savepoint.ends.get(place, 0)} to {first - 1}"
        for place, first in sorted(oldest.items())
        if savepoint.ends.get(place, 0) < first
    ]
    if gone:
        return (
            f"records after the savepoint are gone from Kafka, and its state would never count them: "
            f"{'; '.join(gone)}"
        )
    return None


def why_incompatible(savepoint: Savepoint, shape: TierShape | None) -> str | None:
    """Return why code of this shape cannot continue with a savepoint; None if it can."""
    if savepoint.shape is None or shape is None:
        return "the shape of the tier is not known in both releases"
    reasons = incompatibilities(savepoint.tier, savepoint.shape, shape, {})
    return "; ".join(reason.removesuffix(REBUILT) for reason in reasons) or None
