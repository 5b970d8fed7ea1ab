"""Kafka's answers about stream ids and partition leaders, as the test sets them."""

from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import Any

from sluice.kafka.reader import partition_name, topic_and_number
from sluice.kafka.stream_identity import Identities


class Answers(Identities):
    """Answers for streams with one id, and partitions with one leader epoch."""

    def __init__(self, identity: str = "first") -> None:
        """Start with leader epoch 3 and a log that is never cut back."""
        super().__init__("kafka")
        self.id, self.epoch, self.end = identity, 3, 1 << 60

    def ask(self, topics: Collection[str], _seconds: float = 0.0) -> dict[str, Any]:
        """Return futures that are done at once."""
        return {topic: SimpleNamespace(done=lambda: True) for topic in topics}

    def answer(self, asked: Mapping[str, Any]) -> dict[str, str]:
        """Return the same id for each stream."""
        return dict.fromkeys(asked, self.id)

    def ask_ends(self, places: Collection[str], _seconds: float = 0.0) -> dict[str, Any]:
        """Return futures that are done at once, with the present end and epoch of each
        partition.
        """
        return {
            partition_name(*topic_and_number(place)): SimpleNamespace(
                done=lambda: True, seen=(self.end, self.epoch)
            )
            for place in places
        }

    def ends(self, asked: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
        """Return end and leader epoch of each partition, as they were when `ask_ends` was
        called.
        """
        return {name: answer.seen for name, answer in asked.items()}

    def resumed(self, positions: Mapping[str, int], epochs: Mapping[str, int]) -> dict[str, int]:
        """Return each position, or the log's end where that is lower. The epochs are ignored."""
        del epochs
        return {place: min(position, self.end) for place, position in positions.items()}
