"""Checks whether a stream keeps its acknowledged records if one broker loses its disk.

Decision 48 has the reasons. `sluice.commands.publish` refuses a weak stream, and
`sluice.commands.durability` checks all streams for `sluice doctor`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata, ConfigResource, ResourceType

from sluice_ops.model.kafka_access import ONE_COPY, Durability
from sluice_ops.model.wording import page
from sluice_ops.site import project

SECONDS = 20.0
IN_SYNC = "min.insync.replicas"
UNCLEAN = "unclean.leader.election.enable"
REFUSED = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED})


class WeakStreamError(Exception):
    """A stream would lose acknowledged records with one broker's disk.

    The message names each such stream and the next step.
    """


@dataclass(frozen=True)
class Kept:
    """The settings with which Kafka keeps one stream."""

    replication: int
    """The replicas of the partition with the fewest."""
    in_sync: int
    unclean: bool = False
    """Whether a replica that lacks acknowledged records may become leader.

    The others then drop them.
    """


def weaknesses(streams: Mapping[str, Kept], wanted: Durability) -> list[str]:
    """Return one line for each weakness below `wanted`, with the command that corrects it. Pure.

    ONE_COPY accepts any stream.
    """
    return (
        []
        if wanted == ONE_COPY
        else [line for name, kept in sorted(streams.items()) for line in _weak(name, kept, wanted)]
    )


def _weak(name: str, kept: Kept, wanted: Durability) -> Iterable[str]:
    if kept.replication < wanted.replication:
        yield (
            f"stream {name} has {kept.replication} of {wanted.replication} replicas; "
            f"add them with kafka-reassign-partitions.sh --reassignment-json-file"
        )
    if kept.in_sync < wanted.in_sync:
        yield (
            f"stream {name} acknowledges with {kept.in_sync} of {wanted.in_sync} brokers in sync; "
            f"{_set_command(name, IN_SYNC, wanted.in_sync)}"
        )
    if kept.unclean:
        yield (
            f"stream {name} lets a replica lead that lacks acknowledged records; "
            f"{_set_command(name, UNCLEAN, 'false')}"
        )


def _set_command(name: str, key: str, value: object) -> str:
    return f"kafka-configs.sh --alter --entity-type topics --entity-name {name} --add-config {key}={value}"


def too_few_brokers(count: int, wanted: Durability) -> str | None:
    """Return the error if a stream cannot have so many replicas; None if it can. Pure."""
    if wanted.replication <= count:
        return None
    return (
        f"the site wants each record on {wanted.replication} brokers (replication), and Kafka has {count}; "
        "start more brokers"
    )


def refusal(sentences: Iterable[str]) -> str:
    """Return the text of a refusal, with the two ways to correct it. Pure."""
    file = project.site_path()
    advice = (
        "The loss of one broker's disk would lose acknowledged records. Do what each line above says, or "
        f"accept the loss by this line in {file}:\nreplication: 1"
    )
    return "\n".join([*sentences, advice])


def read(admin: AdminClient, metadata: ClusterMetadata, names: Iterable[str]) -> dict[str, Kept]:
    """Return how Kafka keeps those of the streams that exist.

    WeakStreamError if Kafka does not let this user read the settings.
    """
    existing = [name for name in names if name in metadata.topics]
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in existing]
    kept = {}
    for resource, future in (
        admin.describe_configs(resources, request_timeout=SECONDS) if resources else {}
    ).items():
        try:
            config = future.result()
        except KafkaException as error:
            if error.args[0].code() not in REFUSED:
                raise
            topic = "the topic" if resource.name is None else f"topic {resource.name}"
            message = (
                f"Kafka does not let this user read the settings of {topic}, so it is unknown whether "
                "the loss of one broker's disk would lose records; "
                f"grant the user DescribeConfigs on the topic; see {page('Access', 'Kafka')}"
            )
            raise WeakStreamError(message) from error
        replicas = [
            len(partition.replicas) for partition in metadata.topics[resource.name].partitions.values()
        ]
        kept[resource.name] = Kept(min(replicas), int(config[IN_SYNC].value), config[UNCLEAN].value == "true")
    return kept


def check(admin: AdminClient, metadata: ClusterMetadata, names: Iterable[str], wanted: Durability) -> None:
    """Raise WeakStreamError if one of these streams exists and is weak."""
    if wanted != ONE_COPY and (sentences := weaknesses(read(admin, metadata, names), wanted)):
        raise WeakStreamError(refusal(sentences))
