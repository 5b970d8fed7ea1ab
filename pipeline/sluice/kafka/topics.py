"""The streams in Kafka, and the settings with which `sluice.commands.publish` creates them."""

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
from sluice_ops.model.kafka_access import CONTROL_TOPIC, SOURCES_TOPIC, Durability, Purpose
from sluice_ops.site.brokers import brokers

SECONDS = 20.0
DAY_MS = 24 * 3_600_000
STAMP = "message.timestamp.type"
BY_BROKER = "LogAppendTime"
MAX_BYTES = 1024 * 1024
"""The largest record from outside. Unit: bytes."""
SETTINGS: dict[Purpose, dict[str, str]] = {
    # The broker's clock decides when a record arrived, how long Kafka keeps it, and whether Kafka
    # accepts it; never the clock of a sender or an executor.
    purpose: {
        STAMP: BY_BROKER,
        "retention.ms": str(kept_ms),
        "max.message.bytes": str(MAX_BYTES if purpose is Purpose.ARRIVALS else 2 * MAX_BYTES),
    }
    for purpose, kept_ms in (
        (Purpose.ARRIVALS, 7 * DAY_MS),
        (Purpose.BETWEEN, 3 * DAY_MS),
        (Purpose.QUARANTINE, 30 * DAY_MS),
        (Purpose.WARM_UP, 60_000),  # no process reads these streams
    )
} | {
    # Compaction keeps the last value of each tier, or of each part of a source's memory. With short
    # segments, a process reads little at its start.
    purpose: {"cleanup.policy": "compact", "segment.ms": "3600000", STAMP: BY_BROKER}
    for purpose in (Purpose.CONTROL, Purpose.SOURCES)
}


class TopicError(Exception):
    """Kafka cannot create or describe streams; the message has the reason."""


def purposes(pipeline: Pipeline) -> dict[str, Purpose]:
    """Return the purpose of every stream in Kafka."""
    sources = {stream.name for stream in pipeline.sources}
    by_stream = {
        stream.name: Purpose.ARRIVALS if stream.name in sources else Purpose.BETWEEN
        for stream in pipeline.streams
    }
    by_stream |= {stream.quarantine: Purpose.QUARANTINE for stream in pipeline.streams}
    by_stream |= {
        name + WARM_UP: Purpose.WARM_UP
        for name, purpose in by_stream.items()
        if purpose is not Purpose.ARRIVALS
    }
    return by_stream | {CONTROL_TOPIC: Purpose.CONTROL, SOURCES_TOPIC: Purpose.SOURCES}


def wanted(pipeline: Pipeline) -> dict[str, dict[str, str]]:
    """Return the settings of every stream."""
    return {name: SETTINGS[purpose] for name, purpose in purposes(pipeline).items()}


def create(kafka: str, pipeline: Pipeline, partitions: int, durability: Durability) -> list[str]:
    """Create missing streams, and return their names.

    WeakStreamError, before any stream is created, if the loss of one broker's disk would lose
    acknowledged records and the site does not accept this. TopicError if Kafka does not answer.
    """
    admin = AdminClient({**brokers(kafka).client, "log_level": 2})
    new: list[str] = []
    try:
        streams, safety = wanted(pipeline), {IN_SYNC: str(durability.in_sync), UNCLEAN: "false"}
        topics = [
            NewTopic(
                name,
                1 if name in {CONTROL_TOPIC, SOURCES_TOPIC} else partitions,
                replication_factor=durability.replication,
                config=streams[name] | safety,
            )
            for name in _missing(admin, streams, durability)
        ]
        creations = admin.create_topics(topics, operation_timeout=SECONDS).items() if topics else ()
        for name, created in creations:
            try:
                created.result()
                new.append(name)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
        _widen(admin)
    except KafkaException as error:
        message = f"creating streams in Kafka at {kafka} failed: {error.args[0].str()}"
        raise TopicError(message) from error
    return new


def missing(kafka: str, pipeline: Pipeline, durability: Durability) -> list[str]:
    """Return the streams that `create` would create. The errors are the same."""
    admin = AdminClient({**brokers(kafka).client, "log_level": 2})
    try:
        return _missing(admin, wanted(pipeline), durability)
    except KafkaException as error:
        message = f"Kafka at {kafka} does not answer which streams exist: {error.args[0].str()}"
        raise TopicError(message) from error


def _missing(admin: AdminClient, streams: Iterable[str], durability: Durability) -> list[str]:
    metadata = admin.list_topics(timeout=SECONDS)
    check(admin, metadata, streams, durability)
    names = [name for name in streams if name not in metadata.topics]
    if names and (few := too_few_brokers(len(metadata.brokers), durability)) is not None:
        raise WeakStreamError(refusal([few]))
    return names


def stamp(kafka: str, pipeline: Pipeline) -> str | None:
    """Let brokers stamp the records that tiers write, also in existing streams.

    Return a note for the operator; None if nothing changed.
    """
    admin = AdminClient({**brokers(kafka).client, "log_level": 2})
    written = [name for name, purpose in purposes(pipeline).items() if purpose is not Purpose.ARRIVALS]
    try:
        configs = admin.describe_configs(
            [ConfigResource(ResourceType.TOPIC, name) for name in written], request_timeout=SECONDS
        )
        others = [
            topic.name for topic, config in configs.items() if config.result()[STAMP].value != BY_BROKER
        ]
        setting = [ConfigEntry(STAMP, BY_BROKER, incremental_operation=AlterConfigOpType.SET)]
        changes = [ConfigResource(ResourceType.TOPIC, name, incremental_configs=setting) for name in others]
        for changed in (
            admin.incremental_alter_configs(changes, request_timeout=SECONDS).values() if changes else ()
        ):
            changed.result()
    except KafkaException as error:
        return (
            f"Kafka did not let the publisher read or set {STAMP} ({error.args[0].str()}). "
            f"While {STAMP} is not {BY_BROKER}, a host whose clock is an hour ahead stops its tiers. "
            f"A Kafka administrator must set {STAMP}={BY_BROKER} for {', '.join(written)}"
        )
    return f"Kafka's brokers now stamp the records of: {', '.join(sorted(others))}" if others else None


def partitions(kafka: str) -> dict[str, int]:
    """Return the number of partitions of each stream.

    It may differ from the site file, because other programs may create streams or add partitions.
    """
    admin = AdminClient({**brokers(kafka).client, "log_level": 2})
    try:
        return _counts(admin)
    except KafkaException as error:
        message = (
            f"Kafka at {kafka} does not answer about the partitions of its streams: {error.args[0].str()}"
        )
        raise TopicError(message) from error


def _counts(admin: AdminClient) -> dict[str, int]:
    return {name: len(topic.partitions) for name, topic in admin.list_topics(timeout=SECONDS).topics.items()}


def _widen(admin: AdminClient) -> None:
    """Give each warm-up stream as many partitions as the stream that it stands for."""
    counts = _counts(admin)
    additions = [
        NewPartitions(name + WARM_UP, count)
        for name, count in counts.items()
        if name + WARM_UP in counts and counts[name + WARM_UP] < count
    ]
    for added in admin.create_partitions(additions, operation_timeout=SECONDS).values() if additions else ():
        added.result()
