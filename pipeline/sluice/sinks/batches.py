"""What a micro-batch reads, and where it may be written: right behind a tier's last one. Pure; the ledger writes it."""

from dataclasses import dataclass, field


class MovedError(Exception):
    """Another has written meanwhile: the batch does not begin where the ledger ends."""


class HoleError(Exception):
    """The batch begins after the ledger's end: written, it would leave something out."""


@dataclass(frozen=True)
class Last:
    """A tier's last batch in the ledger."""

    number: int
    ends: dict[str, int]
    at: float
    """When it was written. Unit: epoch seconds."""
    age: float
    """How long ago, by the database's own clock. Unit: seconds."""
    streams: dict[str, str] = field(default_factory=dict)
    """The id of each stream that the ends belong to, as far as it is known."""
    epochs: dict[str, int] = field(default_factory=dict)
    """The epoch of the leader of each partition that the ends belong to, likewise."""

    def is_followed(self, oldest: dict[str, int]) -> bool:
        """Tell whether all that came after it is still there, where the inputs begin at `oldest`."""
        return all(self.ends.get(partition, offset) >= offset for partition, offset in oldest.items())


@dataclass(frozen=True)
class Batch:
    """What a micro-batch reads: offsets from `begins` up to `ends`, by `stream/partition`."""

    begins: dict[str, int]
    ends: dict[str, int]
    streams: dict[str, str] = field(default_factory=dict, compare=False)
    """The ids of the streams that the offsets belong to, as far as they are known."""
    epochs: dict[str, int] = field(default_factory=dict, compare=False)
    """The epochs of the leaders of their partitions, likewise."""

    @property
    def records(self) -> int:
        """How many records it reads."""
        return sum(end - self.begins[partition] for partition, end in self.ends.items())

    def rest(self, done: dict[str, int]) -> "Batch | None":
        """Return what is left of it where everything before `done` is written; None when nothing is. It never begins after `done`."""
        begins = {partition: done.get(partition, begin) for partition, begin in self.begins.items()}
        for partition, begin in begins.items():
            if begin < self.begins[partition]:
                message = f"{partition}: the batch begins at {self.begins[partition]}, and the ledger ends at {begin}; it is read again"
                raise HoleError(message)
        ends = {partition: max(end, begins[partition]) for partition, end in self.ends.items()}
        return Batch(begins, ends) if ends != begins else None

    def reaches(self, done: dict[str, int]) -> bool:
        """Tell whether it ends nowhere before `done`: a state as of its end has then everything that is written."""
        return all(end >= done.get(partition, 0) for partition, end in self.ends.items())

    def expect(self, last: Last | None) -> None:
        """Refuse to be written anywhere but right after `last`."""
        if last is not None and self.rest(last.ends) != self:
            message = f"the batch begins at {self.begins}, and the ledger ends at {last.ends}"
            raise MovedError(message)
