"""Who may do what with each of Kafka's streams, as it is granted: nobody forges what only another one writes."""

from confluent_kafka.admin import AclOperation, ResourceType

from sluice.api import declarations
from sluice.kafka import grants, topics
from sluice.records.lineage import WARM_UP
from sluice_ops.model.kafka_access import CONTROL_TOPIC, READERS, WRITERS, Purpose, User

HITS = declarations.load("hits")


def allowed(operation: AclOperation) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for each in grants.wanted(HITS):
        if each.restype is ResourceType.TOPIC and each.operation is operation:
            found.setdefault(each.name, set()).add(each.principal.removeprefix("User:"))
    return found


def test_records_from_outside_are_written_by_those_outside_only() -> None:
    assert allowed(AclOperation.WRITE)["raw"] == {User.OUTSIDE}
    assert {stream for stream, users in allowed(AclOperation.WRITE).items() if User.OUTSIDE in users} == {
        "raw"
    }


def test_drivers_write_everything_else_and_the_audit_nothing() -> None:
    written = allowed(AclOperation.WRITE)
    assert {stream for stream, users in written.items() if User.DRIVER in users} == topics.wanted(
        HITS
    ).keys() - {"raw"}
    assert not any(User.AUDIT in users for users in written.values())


def test_a_replay_writes_what_its_tier_writes() -> None:
    written = allowed(AclOperation.WRITE)
    assert {stream for stream, users in written.items() if User.OPERATOR in users} == {
        stream
        for stream, users in written.items()
        if User.DRIVER in users and not stream.endswith((WARM_UP, CONTROL_TOPIC))
    }


def test_drivers_alone_say_who_may_write_a_tiers_streams() -> None:
    assert (
        allowed(AclOperation.WRITE)[CONTROL_TOPIC]
        == allowed(AclOperation.READ)[CONTROL_TOPIC]
        == {User.DRIVER}
    )


def test_those_outside_read_nothing() -> None:
    assert not any(User.OUTSIDE in users for users in allowed(AclOperation.READ).values())


def test_every_purpose_has_its_users_and_only_the_publisher_needs_none() -> None:
    assert READERS.keys() == WRITERS.keys() == set(Purpose)
    assert frozenset().union(*READERS.values(), *WRITERS.values()) == set(User) - {User.PUBLISHER}


def test_what_is_told_to_kafkas_admin_names_everything_once() -> None:
    lines = grants.as_text(grants.wanted(HITS)).splitlines()
    assert "  User:outside WRITE TOPIC raw" in lines
    assert "  User:driver READ GROUP sluice-looks spark-kafka-*" in lines
    assert sum(len(line.split()) - 3 for line in lines) == len(grants.wanted(HITS))


def test_where_kafka_asks_for_no_user_nothing_is_granted() -> None:
    assert grants.grant("127.0.0.1:1", HITS) is None
