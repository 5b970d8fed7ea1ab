"""The embedded Kafka's users: their passwords, what the broker's configuration says of them, and what it is told once it answers.

The broker knows its admin by its configuration (PLAIN), or nobody could make the others. All others prove with SCRAM, which shows no
password to whoever answers at the port.
"""

import secrets
from typing import Any
from urllib.parse import quote

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from sluice_ops.local.layout import ADDRESS, Layout
from sluice_ops.model.kafka_access import User
from sluice_ops.site.brokers import BrokersError, brokers, with_user
from sluice_ops.site.files import write_private
from sluice_ops.site.installation import PlatformError

PROTOCOL = "SASL_PLAINTEXT"
"""Users without TLS: it listens on loopback."""
ADMIN = "admin"
BYTES = 24
ROUNDS = 4096
"""The least that SCRAM takes: passwords are random, and nobody can try them all."""
SECONDS = 20.0
LOGIN = "org.apache.kafka.common.security"
PUBLISHES = (
    (ResourceType.BROKER, "kafka-cluster", (AclOperation.CREATE, AclOperation.ALTER)),
    (
        ResourceType.TOPIC,
        "*",
        (
            AclOperation.DESCRIBE,
            AclOperation.DESCRIBE_CONFIGS,
            AclOperation.ALTER,
            AclOperation.ALTER_CONFIGS,
        ),
    ),
)
"""What the publisher may do from the start; it grants the rest."""


def address(where: Layout) -> str:
    """Return the broker's address, with passwords made where there are none."""
    found = f"sasl://{ADDRESS}:{where.ports.kafka}?users={quote(str(where.kafka_users))}"
    try:
        brokers(found)
    except BrokersError as error:
        message = f"{where.home}: Kafka's clients cannot read a password there; set SLUICE_HOME to one without : {{ }} \" \\ in its path"
        raise PlatformError(message) from error
    for user in User:
        kept = where.kafka_users / f"{user}.properties"
        if not kept.exists():
            write_private(kept, f"password={secrets.token_urlsafe(BYTES)}\n")
    where.kafka_users.chmod(0o700)
    return found


def admin(where: Layout) -> dict[str, Any]:
    """Return what a client of the admin's is told."""
    return {
        "bootstrap.servers": f"{ADDRESS}:{where.ports.kafka}",
        "security.protocol": PROTOCOL,
        "sasl.mechanism": "PLAIN",
        "sasl.username": ADMIN,
        "sasl.password": where.secrets().kafka,
    }


def settings(where: Layout) -> str:
    """Say in the broker's configuration who is asked for what; the admin's password is in it. The broker's own two sides speak as it."""
    password = where.secrets().kafka
    known = f'{LOGIN}.plain.PlainLoginModule required username="{ADMIN}" password="{password}" user_{ADMIN}="{password}";'
    return f"""\
listener.security.protocol.map={PROTOCOL}:{PROTOCOL},CONTROLLER:{PROTOCOL}
sasl.enabled.mechanisms=SCRAM-SHA-512,PLAIN
sasl.mechanism.inter.broker.protocol=PLAIN
sasl.mechanism.controller.protocol=PLAIN
listener.name.controller.sasl.enabled.mechanisms=PLAIN
listener.name.controller.plain.sasl.jaas.config={known}
listener.name.{PROTOCOL.lower()}.plain.sasl.jaas.config={known}
listener.name.{PROTOCOL.lower()}.scram-sha-512.sasl.jaas.config={LOGIN}.scram.ScramLoginModule required;
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:{ADMIN}
"""


def make(where: Layout) -> None:
    """Make the users of the embedded broker, with the passwords that are kept for them."""
    passwords = {user: brokers(with_user(address(where), user)).client["sasl.password"] for user in User}
    introduce(AdminClient({**admin(where), "log_level": 0}), passwords)


def introduce(client: AdminClient, passwords: dict[User, str]) -> None:
    """Make users, and let the publisher publish; the same again is fine."""
    how = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, ROUNDS)
    made = client.alter_user_scram_credentials(
        [
            UserScramCredentialUpsertion(user.value, how, password.encode())
            for user, password in passwords.items()
        ]
    )
    granted = client.create_acls(
        [
            AclBinding(
                kind,
                name,
                ResourcePatternType.LITERAL,
                f"User:{User.PUBLISHER}",
                "*",
                operation,
                AclPermissionType.ALLOW,
            )
            for kind, name, operations in PUBLISHES
            for operation in operations
        ]
    )
    for future in (*made.values(), *granted.values()):
        future.result(SECONDS)
