"""The offsets of a micro-batch, and the rule that it begins where the tier's last batch ended.

All functions are pure. `ledger` writes the batches.
"""

from dataclasses import dataclass, field


class LedgerMovedError(Exception):
    """Another writer has written meanwhile: the batch does not begin where the ledger ends."""


class BatchGapError(Exception):
    """The batch begins after the ledger's end, so records between them would be left out."""


@dataclass(frozen=True)
class LastBatch:
    """The tier's last batch in the ledger."""

    number: int
    ends: dict[str, int]
    at: float
    """When the batch was written. Unit: epoch seconds."""
    age: float
    """How long ago the batch was written, by the database's clock. Unit: seconds."""
    streams: dict[str, str] = field(default_factory=dict)
    """The topic ids of the streams that the ends belong to, as far as known."""
    epochs: dict[str, int] = field(default_factory=dict)
    """The leader epochs of the partitions that the ends belong to, as far as known."""
    watermark: int | None = None
    """The watermark of a state in this batch, if it is known. Unit: epoch ms."""

    def is_followed(self, oldest: dict[str, int]) -> bool:
        """Tell whether the inputs still hold all records after this batch.

        `oldest` is where they begin.
        """
        return all(self.ends.get(partition, offset) >= offset for partition, offset in oldest.items())


@dataclass(frozen=True)
class Batch:
    """Offsets of a micro-batch by `stream/partition`: from `begins` to before `ends`."""

    begins: dict[str, int]
    ends: dict[str, int]
    streams: dict[str, str] = field(default_factory=dict, compare=False)
    """The topic ids of the streams that the offsets belong to, as far as known."""
    epochs: dict[str, int] = field(default_factory=dict, compare=False)
    """The leader epochs of the partitions that the offsets belong to, as far as known."""
    watermark: int | None = field(default=None, compare=False)
    """The watermark of a state in this batch; None without a state. Unit: epoch ms."""

    @property
    def records(self) -> int:
        """The number of offsets that the batch spans."""
        return sum(end - self.begins[partition] for partition, end in self.ends.items())

    def is_full(self, most: int) -> bool:
        """Tell whether more records may wait for a query that reads at most `most` at once.

        Spark divides them among the partitions, and rounds each part down.
        """
        return self.records > max(0, most - len(self.ends))

    def rest(self, done: dict[str, int]) -> "Batch | None":
        """Return the part of the batch that is not written yet; None if all is written.

        `done` is up to where records are written. BatchGapError if the batch begins after `done`.
        """
        begins = {partition: done.get(partition, begin) for partition, begin in self.begins.items()}
        for partition, begin in begins.items():
            if begin < self.begins[partition]:
                message = (
                    f"{partition}: the batch begins at offset {self.begins[partition]}, and the ledger ends "
                    f"at {begin}; the batch is not written, and its records are read again"
                )
                raise BatchGapError(message)
        ends = {partition: max(end, begins[partition]) for partition, end in self.ends.items()}
        return Batch(begins, ends, watermark=self.watermark) if ends != begins else None

    def reaches(self, done: dict[str, int]) -> bool:
        """Tell whether the batch ends at `done` or later in each partition.

        A state as of such a batch's end contains everything that is written.
        """
        return all(end >= done.get(partition, 0) for partition, end in self.ends.items())

    def goes_back(self, last: LastBatch) -> bool:
        """Tell whether less time has passed in this batch than in `last`.

        A state may then lack results that `last` has, such as those of timers.
        """
        return self.watermark is not None and last.watermark is not None and self.watermark < last.watermark

    def expect(self, last: LastBatch | None) -> None:
        """Raise LedgerMovedError unless the batch begins exactly where `last` ended."""
        if last is not None and self.rest(last.ends) != self:
            message = (
                f"the batch begins at {self.begins}, and the ledger ends at {last.ends}, because another "
                "incarnation has written meanwhile; the batch is not written, and its records are read again"
            )
            raise LedgerMovedError(message)
