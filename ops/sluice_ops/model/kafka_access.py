"""The rights of each user to read and write Kafka's streams.

`sluice.commands.publish` makes the access lists from these tables.
"""

from enum import StrEnum
from typing import NamedTuple


class User(StrEnum):
    """The user name of a process in Kafka: its role in the channel, if it has one."""

    DRIVER = "driver"
    AUDIT = "audit"
    OPERATOR = "operator"
    """Processes old records again and writes as the tier does: `sluice replay`."""
    PUBLISHER = "publisher"
    """Makes streams and their access lists."""
    OUTSIDE = "outside"
    """Brings records from outside: `sluice ingest`, `sluice feed`, and other senders."""


class Purpose(StrEnum):
    """The purpose of a stream."""

    ARRIVALS = "arrivals"
    """Records from outside."""
    BETWEEN = "between"
    """From tier to tier."""
    QUARANTINE = "quarantine"
    WARM_UP = "warm-up"
    CONTROL = "control"
    """The incarnations of each tier that may write its streams
    (`sluice_ops.model.stream_writers`).
    """
    SOURCES = "sources"
    """The memory of all sources of `sluice ingest`: positions, and answers over HTTP."""


class Durability(NamedTuple):
    """The replicas of a stream, and how many have to be in sync before a record is acknowledged."""

    replication: int
    in_sync: int


ONE_COPY = Durability(1, 1)
"""One replica: the loss of a broker's disk loses records. A site has to request this explicitly."""


CONTROL_TOPIC = "sluice-writers"
SOURCES_TOPIC = "sluice-sources"
READERS: dict[Purpose, frozenset[User]] = {
    Purpose.ARRIVALS: frozenset({User.DRIVER, User.AUDIT, User.OPERATOR}),
    Purpose.BETWEEN: frozenset({User.DRIVER, User.AUDIT, User.OPERATOR}),
    Purpose.QUARANTINE: frozenset({User.DRIVER, User.AUDIT, User.OPERATOR}),
    Purpose.WARM_UP: frozenset(),
    Purpose.CONTROL: frozenset({User.DRIVER}),
    Purpose.SOURCES: frozenset({User.OUTSIDE}),
}
WRITERS: dict[Purpose, frozenset[User]] = {
    Purpose.ARRIVALS: frozenset({User.OUTSIDE}),
    Purpose.BETWEEN: frozenset({User.DRIVER, User.OPERATOR}),
    Purpose.QUARANTINE: frozenset({User.DRIVER, User.OPERATOR}),
    Purpose.WARM_UP: frozenset({User.DRIVER}),
    Purpose.CONTROL: frozenset({User.DRIVER}),
    Purpose.SOURCES: frozenset({User.OUTSIDE}),
}
LOOKERS = "sluice-looks"
"""The consumer group of Sluice's own consumers. None of them commits offsets."""
SPARKS = "spark-kafka-"
"""The prefix of the consumer groups of Spark's connector."""
SOURCES = "sluice-ingest-"
"""The prefix of the transactions of the sources."""
OUTBOXES = "sluice-outbox-"
"""The prefix of the transactions of tiers with state that write streams."""
