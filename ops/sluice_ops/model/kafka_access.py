"""Who may read and write which of Kafka's streams: one table, from which `sluice.commands.publish` makes the access lists."""

from enum import StrEnum
from typing import NamedTuple


class User(StrEnum):
    """As whom Kafka knows a process: its role in the channel, where it has one."""

    DRIVER = "driver"
    AUDIT = "audit"
    OPERATOR = "operator"
    """Who takes records through a tier again, and writes as the tier does: `sluice replay`."""
    PUBLISHER = "publisher"
    """Who makes streams, and says who may use them."""
    OUTSIDE = "outside"
    """Who brings records from outside: `sluice feed`, and whatever feeds the pipeline in earnest."""


class Purpose(StrEnum):
    """What a stream is for."""

    ARRIVALS = "arrivals"
    """Records from outside."""
    BETWEEN = "between"
    """From tier to tier."""
    QUARANTINE = "quarantine"
    WARM_UP = "warm-up"
    CONTROL = "control"
    """Which incarnations of each tier may write its streams (`sluice_ops.model.stream_writers`)."""


class Durability(NamedTuple):
    """On how many brokers a stream's records are, and how many of them have a record before its sender is told that it is kept."""

    replication: int
    in_sync: int


ONE_COPY = Durability(1, 1)
"""A broker's disk that is lost takes its records with it: what a site has to ask for."""


CONTROL_TOPIC = "sluice-writers"
READERS: dict[Purpose, frozenset[User]] = {
    Purpose.ARRIVALS: frozenset({User.DRIVER, User.AUDIT, User.OPERATOR}),
    Purpose.BETWEEN: frozenset({User.DRIVER, User.AUDIT, User.OPERATOR}),
    Purpose.QUARANTINE: frozenset({User.DRIVER, User.AUDIT, User.OPERATOR}),
    Purpose.WARM_UP: frozenset(),
    Purpose.CONTROL: frozenset({User.DRIVER}),
}
WRITERS: dict[Purpose, frozenset[User]] = {
    Purpose.ARRIVALS: frozenset({User.OUTSIDE}),
    Purpose.BETWEEN: frozenset({User.DRIVER, User.OPERATOR}),
    Purpose.QUARANTINE: frozenset({User.DRIVER, User.OPERATOR}),
    Purpose.WARM_UP: frozenset({User.DRIVER}),
    Purpose.CONTROL: frozenset({User.DRIVER}),
}
LOOKERS = "sluice-looks"
"""The group that Sluice's own consumers name; none of them keeps positions in it."""
SPARKS = "spark-kafka-"
"""What the names of the groups begin with that Spark's connector makes up."""
