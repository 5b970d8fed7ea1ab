"""The streams in Kafka: created by `sluice.commands.publish` with the settings that the tiers rely on."""

from collections.abc import Iterable

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from sluice.api.declarations import Pipeline
from sluice.kafka.durability import IN_SYNC, UNCLEAN, WeakStreamError, check, refusal, too_few_brokers
from sluice.records.lineage import WARM_UP
from sluice_ops.model.kafka_access import CONTROL_TOPIC, Durability, Purpose
from sluice_ops.site.brokers import brokers

SECONDS = 20.0
DAY_MS = 24 * 3_600_000
STAMP = "message.timestamp.type"
BY_BROKER = "LogAppendTime"
LARGEST = 1024 * 1024
"""The largest record from outside. Unit: bytes."""
SETTINGS: dict[Purpose, dict[str, str]] = {
    # no sender's and no executor's clock decides when a record came, for how long it is kept, or whether it is taken
    purpose: {
        STAMP: BY_BROKER,
        "retention.ms": str(kept_ms),
        "max.message.bytes": str(LARGEST if purpose is Purpose.ARRIVALS else 2 * LARGEST),
    }
    for purpose, kept_ms in (
        (Purpose.ARRIVALS, 7 * DAY_MS),
        (Purpose.BETWEEN, 3 * DAY_MS),
        (Purpose.QUARANTINE, 30 * DAY_MS),
        (Purpose.WARM_UP, 60_000),  # nobody reads it
    )
} | {
    # the last value for each tier is kept; short segments, so that a driver reads little as it begins
    Purpose.CONTROL: {
        "cleanup.policy": "compact",
        "segment.ms": "3600000",
        "message.timestamp.type": "LogAppendTime",
    }
}


class TopicError(Exception):
    """A stream cannot be made; the message says why."""


def purposes(pipeline: Pipeline) -> dict[str, Purpose]:
    """Return every stream in Kafka, by what it is for."""
    sources = {stream.name for stream in pipeline.sources}
    found = {
        stream.name: Purpose.ARRIVALS if stream.name in sources else Purpose.BETWEEN
        for stream in pipeline.streams
    }
    found |= {stream.quarantine: Purpose.QUARANTINE for stream in pipeline.streams}
    found |= {
        name + WARM_UP: Purpose.WARM_UP for name, purpose in found.items() if purpose is not Purpose.ARRIVALS
    }
    return found | {CONTROL_TOPIC: Purpose.CONTROL}


def wanted(pipeline: Pipeline) -> dict[str, dict[str, str]]:
    """Return every stream with its settings."""
    return {name: SETTINGS[purpose] for name, purpose in purposes(pipeline).items()}


def create(kafka: str, pipeline: Pipeline, partitions: int, durability: Durability) -> list[str]:
    """Create what is missing; return the names of the new ones.

    WeakStreamError, and none is made, where a stream would lose acknowledged records with one broker's disk that the site does not accept.
    """
    admin = AdminClient({**brokers(kafka).client, "log_level": 2})
    new: list[str] = []
    try:
        streams, kept = wanted(pipeline), {IN_SYNC: str(durability.in_sync), UNCLEAN: "false"}
        topics = [
            NewTopic(
                name,
                1 if name == CONTROL_TOPIC else partitions,
                replication_factor=durability.replication,
                config=streams[name] | kept,
            )
            for name in _missing(admin, streams, durability)
        ]
        for name, made in admin.create_topics(topics, operation_timeout=SECONDS).items() if topics else ():
            try:
                made.result()
                new.append(name)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
        _widen(admin)
    except KafkaException as error:
        message = f"streams cannot be made in Kafka at {kafka}: {error.args[0].str()}"
        raise TopicError(message) from error
    return new


def missing(kafka: str, pipeline: Pipeline, durability: Durability) -> list[str]:
    """Return the streams that `create` would make; errors as there."""
    admin = AdminClient({**brokers(kafka).client, "log_level": 2})
    try:
        return _missing(admin, wanted(pipeline), durability)
    except KafkaException as error:
        message = f"Kafka at {kafka} does not tell its streams: {error.args[0].str()}"
        raise TopicError(message) from error


def _missing(admin: AdminClient, streams: Iterable[str], durability: Durability) -> list[str]:
    metadata = admin.list_topics(timeout=SECONDS)
    check(admin, metadata, streams, durability)
    names = [name for name in streams if name not in metadata.topics]
    if names and (few := too_few_brokers(len(metadata.brokers), durability)) is not None:
        raise WeakStreamError(refusal([few]))
    return names


def stamp(kafka: str, pipeline: Pipeline) -> str | None:
    """Have the broker stamp what tiers write, also in streams that are there already; return what a person has to know of it."""
    admin = AdminClient({**brokers(kafka).client, "log_level": 2})
    written = [name for name, purpose in purposes(pipeline).items() if purpose is not Purpose.ARRIVALS]
    try:
        configs = admin.describe_configs(
            [ConfigResource(ResourceType.TOPIC, name) for name in written], request_timeout=SECONDS
        )
        others = [each.name for each, config in configs.items() if config.result()[STAMP].value != BY_BROKER]
        wanted = [ConfigEntry(STAMP, BY_BROKER, incremental_operation=AlterConfigOpType.SET)]
        changes = [ConfigResource(ResourceType.TOPIC, name, incremental_configs=wanted) for name in others]
        for changed in (
            admin.incremental_alter_configs(changes, request_timeout=SECONDS).values() if changes else ()
        ):
            changed.result()
    except KafkaException as error:
        return (
            f"Kafka did not tell or change how streams are stamped ({error.args[0].str()}): while {STAMP} is not {BY_BROKER}, a host whose "
            f"clock is an hour ahead stops its tiers; Kafka's admin has to set it for {', '.join(written)}"
        )
    return f"stamped by Kafka's brokers from now on: {', '.join(sorted(others))}" if others else None


def partitions(kafka: str) -> dict[str, int]:
    """Return how many partitions each stream has: somebody may have made it with more than the site file says, or added some."""
    admin = AdminClient({**brokers(kafka).client, "log_level": 2})
    try:
        return _counts(admin)
    except KafkaException as error:
        message = f"Kafka at {kafka} does not tell the partitions of its streams: {error.args[0].str()}"
        raise TopicError(message) from error


def _counts(admin: AdminClient) -> dict[str, int]:
    return {name: len(topic.partitions) for name, topic in admin.list_topics(timeout=SECONDS).topics.items()}


def _widen(admin: AdminClient) -> None:
    """Give each warm-up's stream the partitions of the stream that it stands for, when those were added to."""
    present = _counts(admin)
    narrow = [
        NewPartitions(name + WARM_UP, count)
        for name, count in present.items()
        if name + WARM_UP in present and present[name + WARM_UP] < count
    ]
    for widened in admin.create_partitions(narrow, operation_timeout=SECONDS).values() if narrow else ():
        widened.result()
