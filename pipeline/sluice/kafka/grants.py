"""Kafka's access lists, on clusters whose brokers authenticate users.

`sluice.commands.publish` grants the rights for the streams of its pipeline.
"""

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
from sluice_ops.model.kafka_access import LOOKERS, OUTBOXES, READERS, SOURCES, SPARKS, WRITERS, Purpose, User
from sluice_ops.site.brokers import brokers

REFUSED = frozenset({KafkaError.CLUSTER_AUTHORIZATION_FAILED, KafkaError.SECURITY_DISABLED})
"""Kafka's errors if the publisher must not grant rights, or the brokers keep no access lists."""
DONE = "Kafka: all users have their rights to these streams"


def wanted(pipeline: Pipeline) -> list[AclBinding]:
    """Return the rights that Kafka must grant.

    The right to read or write a stream includes Describe.
    """
    return [*_of_streams(purposes(pipeline)), *_of_groups(), *_of_transactions()]


def _of_streams(streams: dict[str, Purpose]) -> Iterator[AclBinding]:
    for stream, purpose in streams.items():
        for users, operation in (
            (READERS[purpose], AclOperation.READ),
            (WRITERS[purpose], AclOperation.WRITE),
        ):
            yield from (_allowed(ResourceType.TOPIC, stream, user, operation) for user in sorted(users))
        # `sluice doctor --host` reads the settings of streams.
        yield _allowed(ResourceType.TOPIC, stream, User.DRIVER, AclOperation.DESCRIBE_CONFIGS)


def _of_groups() -> Iterator[AclBinding]:
    for user in sorted(frozenset[User]().union(*READERS.values())):
        yield _allowed(ResourceType.GROUP, LOOKERS, user, AclOperation.READ)
    for user in (User.DRIVER, User.OPERATOR):
        yield _allowed(ResourceType.GROUP, SPARKS, user, AclOperation.READ, ResourcePatternType.PREFIXED)


def _of_transactions() -> Iterator[AclBinding]:
    transactions = [(user, SOURCES) for user in sorted(WRITERS[Purpose.SOURCES])] + [(User.DRIVER, OUTBOXES)]
    for user, prefix in transactions:
        yield _allowed(
            ResourceType.TRANSACTIONAL_ID, prefix, user, AclOperation.WRITE, ResourcePatternType.PREFIXED
        )


def _allowed(
    kind: ResourceType,
    name: str,
    user: User,
    operation: AclOperation,
    pattern: ResourcePatternType = ResourcePatternType.LITERAL,
) -> AclBinding:
    return AclBinding(kind, name, pattern, f"User:{user}", "*", operation, AclPermissionType.ALLOW)


def grant(kafka: str, pipeline: Pipeline) -> str | None:
    """Grant the rights, and return a note for the operator.

    None if the brokers authenticate no users; then nothing is granted. TopicError if Kafka does not
    answer.
    """
    if brokers(kafka).users is None:
        return None
    bindings, admin = wanted(pipeline), AdminClient({**brokers(kafka).client, "log_level": 2})
    try:
        for created in admin.create_acls(bindings, request_timeout=SECONDS).values():
            created.result()
    except KafkaException as error:
        if error.args[0].code() in REFUSED:
            return (
                f"Kafka refused to grant the rights of its users ({error.args[0].str()}); "
                f"a Kafka administrator must grant them:\n{as_text(bindings)}"
            )
        message = f"granting rights in Kafka at {kafka} failed: {error.args[0].str()}"
        raise TopicError(message) from error
    return DONE


def as_text(bindings: list[AclBinding]) -> str:
    """Return the rights as text: a line for each user, operation and resource type."""
    lines: dict[tuple[str, str, str], list[str]] = {}
    for binding in bindings:
        is_prefix = binding.resource_pattern_type is ResourcePatternType.PREFIXED
        right = (binding.principal, binding.operation.name, binding.restype.name)
        lines.setdefault(right, []).append(f"{binding.name}*" if is_prefix else binding.name)
    return "\n".join(
        f"  {user} {operation} {resource_type} {' '.join(names)}"
        for (user, operation, resource_type), names in sorted(lines.items())
    )
