"""What Kafka answers of a stream's id and of its leaders, as a test has it."""

from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import Any

from sluice.kafka.reader import partition_name, topic_and_number
from sluice.kafka.stream_identity import Identities


class Answers(Identities):
    """Of streams that have one id, and partitions that have one leader's epoch."""

    def __init__(self, identity: str = "first") -> None:
        """Begin by the third leader, with a log that is never cut back."""
        super().__init__("kafka")
        self.id, self.epoch, self.end = identity, 3, 1 << 60

    def ask(self, topics: Collection[str]) -> dict[str, Any]:
        """Answer at once."""
        return {topic: SimpleNamespace(done=lambda: True) for topic in topics}

    def answer(self, asked: Mapping[str, Any]) -> dict[str, str]:
        """Tell the id."""
        return dict.fromkeys(asked, self.id)

    def ask_ends(self, places: Collection[str]) -> dict[str, Any]:
        """Answer at once, and as of now."""
        return {
            partition_name(*topic_and_number(place)): SimpleNamespace(
                done=lambda: True, seen=(self.end, self.epoch)
            )
            for place in places
        }

    def ends(self, asked: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
        """Tell the leader's epoch as of the question."""
        return {place: each.seen for place, each in asked.items()}

    def resumed(self, positions: Mapping[str, int], epochs: Mapping[str, int]) -> dict[str, int]:
        """Tell where the log was cut back, whatever epoch is asked of."""
        del epochs
        return {place: min(position, self.end) for place, position in positions.items()}
