"""The embedded Kafka's users: their passwords, the broker's configuration, and their creation.

The configuration contains the admin (PLAIN), who creates the other users. All others log in with
SCRAM, which does not reveal the password to a false broker.
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
"""Users without TLS: the broker listens on loopback only."""
ADMIN = "admin"
BYTES = 24
"""Random bytes in a password."""
ROUNDS = 4096
"""SCRAM's minimum of iterations: enough, because nobody can try all random passwords."""
SECONDS = 20.0
"""Limit for the broker to create a user or an access list."""
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
"""The first rights of the publisher, who grants all other rights."""


def address(layout: Layout) -> str:
    """Return the broker's address, and create missing passwords."""
    url = f"sasl://{ADDRESS}:{layout.ports.kafka}?users={quote(str(layout.kafka_users))}"
    try:
        brokers(url)
    except BrokersError as error:
        message = (
            f"Kafka's clients cannot read passwords below {layout.home}; "
            'set SLUICE_HOME to a folder without : { } " \\ in its path'
        )
        raise PlatformError(message) from error
    for user in User:
        file = layout.kafka_users / f"{user}.properties"
        if not file.exists():
            write_private(file, f"password={secrets.token_urlsafe(BYTES)}\n")
    layout.kafka_users.chmod(0o700)
    return url


def admin(layout: Layout) -> dict[str, Any]:
    """Return the client settings of the admin."""
    return {
        "bootstrap.servers": f"{ADDRESS}:{layout.ports.kafka}",
        "security.protocol": PROTOCOL,
        "sasl.mechanism": "PLAIN",
        "sasl.username": ADMIN,
        "sasl.password": layout.secrets().kafka,
    }


def settings(layout: Layout) -> str:
    """Return the part of the broker's configuration about users; it contains the admin's password.

    The broker and its controller talk to each other as the admin.
    """
    password = layout.secrets().kafka
    login = (
        f'{LOGIN}.plain.PlainLoginModule required username="{ADMIN}" password="{password}" '
        f'user_{ADMIN}="{password}";'
    )
    return f"""\
listener.security.protocol.map={PROTOCOL}:{PROTOCOL},CONTROLLER:{PROTOCOL}
sasl.enabled.mechanisms=SCRAM-SHA-512,PLAIN
sasl.mechanism.inter.broker.protocol=PLAIN
sasl.mechanism.controller.protocol=PLAIN
listener.name.controller.sasl.enabled.mechanisms=PLAIN
listener.name.controller.plain.sasl.jaas.config={login}
listener.name.{PROTOCOL.lower()}.plain.sasl.jaas.config={login}
listener.name.{PROTOCOL.lower()}.scram-sha-512.sasl.jaas.config={LOGIN}.scram.ScramLoginModule required;
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:{ADMIN}
"""


def create_all(layout: Layout) -> None:
    """Create the users of the embedded broker, with the passwords in their files."""
    passwords = {user: brokers(with_user(address(layout), user)).client["sasl.password"] for user in User}
    create(AdminClient({**admin(layout), "log_level": 0}), passwords)


def create(client: AdminClient, passwords: dict[User, str]) -> None:
    """Create users, and give the publisher its first rights; repeating is harmless."""
    scram = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, ROUNDS)
    users = client.alter_user_scram_credentials(
        [
            UserScramCredentialUpsertion(user.value, scram, password.encode())
            for user, password in passwords.items()
        ]
    )
    rights = client.create_acls(
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
    for future in (*users.values(), *rights.values()):
        future.result(SECONDS)
