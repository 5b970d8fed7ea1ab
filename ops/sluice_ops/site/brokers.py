"""How Kafka is reached: the address in the endpoints file, as librdkafka and as Spark want to have it said.

`k1:9092,k2:9092` in the clear, or with TLS `ssl://k1:9093,k2:9093?ca=/etc/sluice/ca.pem&certificate=/etc/sluice/h1.pem`, where
`certificate` is one's own, for brokers that ask for it: a file with the private key first and the certificate, with its chain, after that.
For brokers that ask for a user (SCRAM-SHA-512): `ssl://k1:9093?ca=/etc/sluice/ca.pem&users=/etc/sluice/kafka`. That folder has a file for
each user that processes of this machine are, such as `driver.properties`, with the line `password=…`. With `sasl://k1:9092?users=…`,
as on the embedded platform, there is no TLS: passwords are not shown on the way, records are. A password goes from the folder
to librdkafka, or is read by Kafka's own client in the JVM: Spark, which writes options into plans and errors, is told the file.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from sluice_ops.model.kafka_access import User

NEEDED = {"ssl": "ca", "sasl": "users"}
"""What has to be said with each scheme."""
KNOWN = {"ssl": frozenset({"ca", "certificate", "users", "user"}), "sasl": frozenset({"users", "user"})}
PROTOCOLS = {(True, False): "SSL", (True, True): "SASL_SSL", (False, True): "SASL_PLAINTEXT"}
"""By whether there is TLS, and whether brokers ask for a user."""
MECHANISM = "SCRAM-SHA-512"
FOLDER = re.compile(r"/[^:{}\"\\]*")
"""What Kafka's client can be told of the folder, in the JVM."""
PASSWORD = re.compile(r"[^\s\"\\]+")
"""What is the same to a file of properties and to us."""
OTHERS = 0o007
"""Permissions of everybody on a machine."""


class BrokersError(ValueError):
    """The address cannot be used; the message says why."""


@dataclass(frozen=True)
class Brokers:
    """An address of Kafka."""

    servers: str
    """`host:port`, several with commas."""
    ca: str | None = None
    """The file with the certificate of the authority that has signed the brokers'. None: in the clear."""
    certificate: str | None = None
    users: str | None = None
    """The folder with the users' passwords. None: the brokers ask for no user."""
    user: str | None = None
    """Who asks."""

    @property
    def client(self) -> dict[str, Any]:
        """Return what librdkafka is told; BrokersError where the user's password is not here."""
        said = {"bootstrap.servers": self.servers, **self._protocol}
        if self.ca is not None:
            said |= {"ssl.ca.location": self.ca}
        if self.certificate is not None:
            said |= {"ssl.certificate.location": self.certificate, "ssl.key.location": self.certificate}
        if self.kept is not None:
            said |= {
                "sasl.mechanism": MECHANISM,
                "sasl.username": self.kept.stem,
                "sasl.password": _password(self.kept),
            }
        return said

    @property
    def spark(self) -> dict[str, str]:
        """Return the options of Spark's Kafka connector."""
        said = {"bootstrap.servers": self.servers, **self._protocol}
        if self.ca is not None:
            said |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": self.ca}
        if self.certificate is not None:
            said |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": self.certificate}
        if self.kept is not None:
            login = "org.apache.kafka.common.security.scram.ScramLoginModule required"
            said |= {
                "config.providers": "file",
                "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
                "sasl.mechanism": MECHANISM,
                "sasl.jaas.config": f'{login} username="{self.kept.stem}" password="${{file:{self.kept}:password}}";',
            }
        return {f"kafka.{key}": value for key, value in said.items()}

    @property
    def _protocol(self) -> dict[str, str]:
        found = PROTOCOLS.get((self.ca is not None, self.users is not None))
        return {} if found is None else {"security.protocol": found}

    @property
    def kept(self) -> Path | None:
        """The file with the user's password; None where brokers ask for no user."""
        if self.users is None:
            return None
        if self.user is None:
            message = f"Kafka at {self.servers} asks for a user, and nobody has said which"
            raise BrokersError(message)
        return Path(self.users) / f"{self.user}.properties"


def brokers(address: str) -> Brokers:
    """Read an address."""
    scheme, parted, rest = address.partition("://")
    if not parted:
        return Brokers(address)
    servers, _, query = rest.partition("?")
    said = dict(parse_qsl(query))
    whole = bool(servers) and NEEDED.get(scheme) in said and not said.keys() - KNOWN[scheme]
    if not whole or not FOLDER.fullmatch(said.get("users", "/")):
        message = (
            f"{address!r}: write it like ssl://k1:9093,k2:9093?ca=FILE, or with &certificate=FILE or &users=FOLDER after that, "
            "where the folder's path begins with / and has none of : { } in it"
        )
        raise BrokersError(message)
    return Brokers(servers, **said)


def signed(address: str, user: User) -> str:
    """Return the address for one of the users; as it is, where brokers ask for none."""
    return address if brokers(address).users is None else f"{address}&user={user}"


def _password(kept: Path) -> str:
    try:
        lines, mode = kept.read_text().splitlines(), kept.stat().st_mode
    except (FileNotFoundError, PermissionError) as error:
        message = f"{kept} is not there, or not for user {os.geteuid()}: it holds the password of Kafka's user {kept.stem}, as password=…"
        raise BrokersError(message) from error
    if mode & OTHERS:
        message = f"{kept} can be read by everybody on this machine: chmod o= {kept}"
        raise BrokersError(message)
    found = [line.removeprefix("password=") for line in lines if line.startswith("password=")]
    if len(found) != 1 or not PASSWORD.fullmatch(found[0]):
        message = f'{kept} has to have one line password=…, without spaces, " and \\ in it'
        raise BrokersError(message)
    return found[0]
