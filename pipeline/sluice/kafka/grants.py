"""Kafka's access lists, where its brokers ask for users: made by `sluice.commands.publish` for the streams of its pipeline."""

from collections.abc import Iterator

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from sluice.api.declarations import Pipeline
from sluice.kafka.topics import SECONDS, TopicError, purposes
from sluice_ops.model.kafka_access import LOOKERS, READERS, SPARKS, WRITERS, Purpose, User
from sluice_ops.site.brokers import brokers

REFUSED = frozenset({KafkaError.CLUSTER_AUTHORIZATION_FAILED, KafkaError.SECURITY_DISABLED})
"""The publisher may not grant; the brokers keep no access lists."""
DONE = "Kafka: its users have their rights to these streams"


def wanted(pipeline: Pipeline) -> list[AclBinding]:
    """Return what Kafka has to allow; who reads or writes a stream may look at what there is of it, too."""
    return [*_of_streams(purposes(pipeline)), *_of_groups()]


def _of_streams(streams: dict[str, Purpose]) -> Iterator[AclBinding]:
    for stream, purpose in streams.items():
        for users, operation in (
            (READERS[purpose], AclOperation.READ),
            (WRITERS[purpose], AclOperation.WRITE),
        ):
            yield from (_allowed(ResourceType.TOPIC, stream, user, operation) for user in sorted(users))
        yield _allowed(
            ResourceType.TOPIC, stream, User.DRIVER, AclOperation.DESCRIBE_CONFIGS
        )  # for `sluice doctor --host`


def _of_groups() -> Iterator[AclBinding]:
    for user in sorted(READERS[Purpose.BETWEEN]):
        yield _allowed(ResourceType.GROUP, LOOKERS, user, AclOperation.READ)
    for user in (User.DRIVER, User.OPERATOR):
        yield _allowed(ResourceType.GROUP, SPARKS, user, AclOperation.READ, ResourcePatternType.PREFIXED)


def _allowed(
    kind: ResourceType,
    name: str,
    user: User,
    operation: AclOperation,
    pattern: ResourcePatternType = ResourcePatternType.LITERAL,
) -> AclBinding:
    return AclBinding(kind, name, pattern, f"User:{user}", "*", operation, AclPermissionType.ALLOW)


def grant(kafka: str, pipeline: Pipeline) -> str | None:
    """Grant it all; return what a person has to know of it. Where brokers ask for no user, nothing is done."""
    if brokers(kafka).users is None:
        return None
    lists, admin = wanted(pipeline), AdminClient({**brokers(kafka).client, "log_level": 2})
    try:
        for made in admin.create_acls(lists, request_timeout=SECONDS).values():
            made.result()
    except KafkaException as error:
        if error.args[0].code() in REFUSED:
            why = error.args[0].str()
            return f"Kafka did not take the rights of its users ({why}); they have to be granted by its admin:\n{told(lists)}"
        message = f"rights cannot be granted in Kafka at {kafka}: {error.args[0].str()}"
        raise TopicError(message) from error
    return DONE


def told(lists: list[AclBinding]) -> str:
    """Say who needs what, a line for each user, kind of thing and operation."""
    lines: dict[tuple[str, str, str], list[str]] = {}
    for each in lists:
        name = f"{each.name}*" if each.resource_pattern_type is ResourcePatternType.PREFIXED else each.name
        lines.setdefault((each.principal, each.operation.name, each.restype.name), []).append(name)
    return "\n".join(
        f"  {user} {operation} {kind} {' '.join(names)}"
        for (user, operation, kind), names in sorted(lines.items())
    )
