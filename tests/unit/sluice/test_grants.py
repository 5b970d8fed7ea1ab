"""Kafka's access rights as granted: no user can write records that only another user may write."""

from confluent_kafka.admin import AclOperation, ResourceType

from sluice.api import declarations
from sluice.kafka import grants, topics
from sluice.records.lineage import WARM_UP
from sluice_ops.model.kafka_access import CONTROL_TOPIC, READERS, SOURCES_TOPIC, WRITERS, Purpose, User

HITS = declarations.load("hits")


def allowed(operation: AclOperation) -> dict[str, set[str]]:
    users_by_stream: dict[str, set[str]] = {}
    for grant in grants.wanted(HITS):
        if grant.restype is ResourceType.TOPIC and grant.operation is operation:
            users_by_stream.setdefault(grant.name, set()).add(grant.principal.removeprefix("User:"))
    return users_by_stream


def test_only_outside_senders_write_the_raw_stream() -> None:
    assert allowed(AclOperation.WRITE)["raw"] == {User.OUTSIDE}
    assert {stream for stream, users in allowed(AclOperation.WRITE).items() if User.OUTSIDE in users} == {
        "raw",
        SOURCES_TOPIC,
    }


def test_drivers_write_all_other_streams_and_the_audit_none() -> None:
    written = allowed(AclOperation.WRITE)
    assert {stream for stream, users in written.items() if User.DRIVER in users} == topics.wanted(
        HITS
    ).keys() - {"raw", SOURCES_TOPIC}
    assert not any(User.AUDIT in users for users in written.values())


def test_a_replay_writes_the_streams_of_its_tier() -> None:
    written = allowed(AclOperation.WRITE)
    assert {stream for stream, users in written.items() if User.OPERATOR in users} == {
        stream
        for stream, users in written.items()
        if User.DRIVER in users and not stream.endswith((WARM_UP, CONTROL_TOPIC))
    }


def test_only_drivers_use_the_control_topic_of_writers() -> None:
    assert (
        allowed(AclOperation.WRITE)[CONTROL_TOPIC]
        == allowed(AclOperation.READ)[CONTROL_TOPIC]
        == {User.DRIVER}
    )


def test_outside_senders_read_only_what_sources_remember() -> None:
    read = {stream for stream, users in allowed(AclOperation.READ).items() if User.OUTSIDE in users}
    assert read == {SOURCES_TOPIC}
    assert allowed(AclOperation.READ)[SOURCES_TOPIC] == {User.OUTSIDE}


def test_every_purpose_has_users_and_only_the_publisher_has_none() -> None:
    assert READERS.keys() == WRITERS.keys() == set(Purpose)
    assert frozenset().union(*READERS.values(), *WRITERS.values()) == set(User) - {User.PUBLISHER}


def test_the_text_for_kafkas_admin_names_each_grant_once() -> None:
    lines = grants.as_text(grants.wanted(HITS)).splitlines()
    assert "  User:outside WRITE TOPIC raw sluice-sources" in lines
    assert "  User:driver READ GROUP sluice-looks spark-kafka-*" in lines
    assert "  User:outside WRITE TRANSACTIONAL_ID sluice-ingest-*" in lines
    assert sum(len(line.split()) - 3 for line in lines) == len(grants.wanted(HITS))


def test_without_users_in_kafka_nothing_is_granted() -> None:
    assert grants.grant("127.0.0.1:1", HITS) is None
