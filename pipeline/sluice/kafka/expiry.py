"""How long Kafka keeps the records of streams."""

from collections.abc import Sequence

from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

SECONDS = 10.0
RETENTION = "retention.ms"


def kept_seconds(admin: AdminClient, streams: Sequence[str]) -> dict[str, float]:
    """Return how long Kafka keeps a record of each stream; streams without a limit are left out.

    KafkaException if Kafka does not answer, or does not let this user read the settings.
    """
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in streams]
    answers = admin.describe_configs(resources, request_timeout=SECONDS).items()
    kept = {str(resource.name): int(answer.result()[RETENTION].value) for resource, answer in answers}
    return {name: milliseconds / 1000 for name, milliseconds in kept.items() if milliseconds > 0}
