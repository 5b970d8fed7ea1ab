"""Whether a stream keeps what it has acknowledged when one broker's disk is lost (decision record 0048).

`sluice.commands.publish` refuses a stream that does not. `sluice doctor` runs `python -m sluice.kafka.durability [--as driver]`, which
prints a line for each weak stream. Exit codes: 0 none is weak; 1 some are, or the site file or the pipeline cannot be read; 2 Kafka does
not answer.
"""

import argparse
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata, ConfigResource, ResourceType

from sluice.api import declarations
from sluice_ops.model.kafka_access import ONE_COPY, Durability, User
from sluice_ops.site import endpoints, site_file
from sluice_ops.site.brokers import brokers

SECONDS = 20.0
LOOK_SECONDS = 5.0
"""How long a doctor waits for Kafka, which it looks at by other means too."""
IN_SYNC = "min.insync.replicas"
UNCLEAN = "unclean.leader.election.enable"
REFUSED = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED})
WRONG = 1
AWAY = 2


class WeakStreamError(Exception):
    """A stream would lose acknowledged records with one broker's disk; the message names each one, and says what to do."""


@dataclass(frozen=True)
class Kept:
    """How Kafka keeps one stream."""

    replication: int
    """Of the partition that has the fewest replicas."""
    in_sync: int
    unclean: bool = False
    """A replica that lacks acknowledged records may become the leader, and the others then drop theirs."""


def weak(streams: Mapping[str, Kept], wanted: Durability) -> list[str]:
    """Say of each stream that is kept less safely than the site wants what it has and what mends it; ONE_COPY takes any. Pure."""
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
        yield f"stream {name} acknowledges with {kept.in_sync} of {wanted.in_sync} brokers in sync; {_set(name, IN_SYNC, wanted.in_sync)}"
    if kept.unclean:
        yield f"stream {name} lets a replica lead that lacks acknowledged records; {_set(name, UNCLEAN, 'false')}"


def _set(name: str, key: str, value: object) -> str:
    return f"kafka-configs.sh --alter --entity-type topics --entity-name {name} --add-config {key}={value}"


def too_few_brokers(count: int, wanted: Durability) -> str | None:
    """Say that a stream cannot be made with so many replicas; None where it can. Pure."""
    if wanted.replication <= count:
        return None
    return f"the site wants each record on {wanted.replication} brokers (replication), and Kafka has {count}: bring up more"


def refusal(sentences: Iterable[str]) -> str:
    """Say what is refused, and the two ways out. Pure."""
    file = Path(os.environ.get("SLUICE_SITE", "site.yaml")).resolve()
    loss = "The loss of one broker's disk would lose acknowledged records: do what each line above says, or accept that loss"
    return "\n".join([*sentences, f"{loss} by this line in {file}:\nreplication: 1"])


def read(admin: AdminClient, metadata: ClusterMetadata, names: Iterable[str]) -> dict[str, Kept]:
    """Read how those of the streams are kept that are there; WeakStreamError where Kafka does not let this user read it."""
    present = [name for name in names if name in metadata.topics]
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in present]
    found = {}
    for resource, future in (
        admin.describe_configs(resources, request_timeout=SECONDS) if resources else {}
    ).items():
        try:
            config = future.result()
        except KafkaException as error:
            if error.args[0].code() not in REFUSED:
                raise
            user = (
                "the user that looks" if resource.name is None else f"the user that looks at {resource.name}"
            )
            message = (
                f"Kafka does not tell {user} the stream's settings, so nobody knows whether it would lose records with one broker's disk: "
                "grant it DescribeConfigs on the topic (docs/access.md, Kafka)"
            )
            raise WeakStreamError(message) from error
        replicas = [
            len(partition.replicas) for partition in metadata.topics[resource.name].partitions.values()
        ]
        found[resource.name] = Kept(
            min(replicas), int(config[IN_SYNC].value), config[UNCLEAN].value == "true"
        )
    return found


def check(admin: AdminClient, metadata: ClusterMetadata, names: Iterable[str], wanted: Durability) -> None:
    """Raise WeakStreamError where one of these streams is there and weak."""
    if wanted != ONE_COPY and (sentences := weak(read(admin, metadata, names), wanted)):
        raise WeakStreamError(refusal(sentences))


def main(arguments: list[str] | None = None) -> int:
    """Look at the streams of the site's pipeline."""
    from sluice.kafka import topics  # noqa: PLC0415 — which checks by this module

    parser = argparse.ArgumentParser(
        prog="python -m sluice.kafka.durability",
        description="Whether one broker's disk may take records along.",
    )
    parser.add_argument(
        "--as",
        dest="user",
        type=User,
        choices=list(User),
        default=User.PUBLISHER,
        help="the user of Kafka who looks",
    )
    user = parser.parse_args(arguments).user
    try:
        settings = site_file.load(Path(os.environ.get("SLUICE_SITE", "site.yaml")))
        kafka, wanted = endpoints.load().kafka_as(user), settings.durability
        if wanted == ONE_COPY:
            sys.stdout.write(
                "replication: 1, as the site file says: the loss of one broker's disk loses acknowledged records\n"
            )
            return 0
        names = topics.wanted(declarations.load(settings.pipeline))
        admin = AdminClient({**brokers(kafka).client, "log_level": 2})
        check(admin, admin.list_topics(timeout=LOOK_SECONDS), names, wanted)
    except KafkaException as error:
        sys.stderr.write(f"Kafka does not tell how it keeps its streams: {error.args[0].str()}\n")
        return AWAY
    except (
        site_file.SiteError,
        declarations.DeclarationError,
        endpoints.EndpointsError,
        FileNotFoundError,
        WeakStreamError,
    ) as error:
        sys.stderr.write(f"{error}\n")
        return WRONG
    sys.stdout.write(
        f"each record is on {wanted.replication} brokers, {wanted.in_sync} of them before it is acknowledged\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
