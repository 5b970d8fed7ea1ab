"""Kafka's address in the endpoints file, as settings for librdkafka and for Spark.

- `k1:9092,k2:9092`: without encryption.
- `ssl://k1:9093,k2:9093?ca=/etc/sluice/ca.pem`: with TLS. `&certificate=/etc/sluice/h1.pem` names
  this machine's certificate, for brokers that ask for one: a file with the private key first, then
  the certificate and its chain.
- `ssl://k1:9093?ca=/etc/sluice/ca.pem&users=/etc/sluice/kafka`: for brokers that ask for a user
  (SCRAM-SHA-512). The folder has a file for each user of this machine's processes, such as
  `driver.properties`, with the line `password=…`.
- `sasl://k1:9092?users=…`: users without TLS, as on the embedded platform. The network shows
  records, but not passwords.

librdkafka gets the password from the file. Spark gets only the file's path, because Spark writes
its options into plans and errors; Kafka's client in the JVM reads the file.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from sluice_ops.model.kafka_access import User

NEEDED = {"ssl": "ca", "sasl": "users"}
"""The required option of each scheme."""
KNOWN = {"ssl": frozenset({"ca", "certificate", "users", "user"}), "sasl": frozenset({"users", "user"})}
PROTOCOLS = {(True, False): "SSL", (True, True): "SASL_SSL", (False, True): "SASL_PLAINTEXT"}
"""Kafka's security protocol, by (with TLS, with users)."""
MECHANISM = "SCRAM-SHA-512"
FOLDER = re.compile(r"/[^:{}\"\\]*")
"""Paths of the users' folder that Kafka's client in the JVM can read."""
PASSWORD = re.compile(r"[^\s\"\\]+")
"""Passwords that Java and Python read equally from a file of properties."""
OTHERS = 0o007
"""The permissions of all other users of a machine."""


class BrokersError(ValueError):
    """The address is unusable; the message says why."""


@dataclass(frozen=True)
class Brokers:
    """A parsed address of Kafka."""

    servers: str
    """`host:port`, several with commas."""
    ca: str | None = None
    """The file with the certificate of the authority that signed the brokers'. None: no TLS."""
    certificate: str | None = None
    """The file with this machine's key and certificate. None: the brokers ask for none."""
    users: str | None = None
    """The folder with the users' passwords. None: the brokers ask for no user."""
    user: str | None = None
    """The user to log in as."""

    @property
    def client(self) -> dict[str, Any]:
        """Settings for librdkafka; BrokersError if the user's password is not readable."""
        settings = {"bootstrap.servers": self.servers, **self._protocol}
        if self.ca is not None:
            settings |= {"ssl.ca.location": self.ca}
        if self.certificate is not None:
            settings |= {"ssl.certificate.location": self.certificate, "ssl.key.location": self.certificate}
        if self.password_file is not None:
            settings |= {
                "sasl.mechanism": MECHANISM,
                "sasl.username": self.password_file.stem,
                "sasl.password": _password(self.password_file),
            }
        return settings

    @property
    def spark(self) -> dict[str, str]:
        """Options for Spark's Kafka connector."""
        settings = self._java
        file = self.password_file
        if file is not None:
            settings |= {
                "config.providers": "file",
                "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
                "sasl.jaas.config": _jaas(file.stem, f"${{file:{file}:password}}"),
            }
        return {f"kafka.{key}": value for key, value in settings.items()}

    @property
    def java_client(self) -> dict[str, str]:
        """Settings for Kafka's own tools; BrokersError if the user's password is not readable."""
        settings = self._java
        file = self.password_file
        if file is not None:
            settings["sasl.jaas.config"] = _jaas(file.stem, _password(file))
        return settings

    @property
    def _java(self) -> dict[str, str]:
        """Settings for Kafka's client in the JVM, without the login."""
        settings = {"bootstrap.servers": self.servers, **self._protocol}
        if self.ca is not None:
            settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": self.ca}
        if self.certificate is not None:
            settings |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": self.certificate}
        if self.users is not None:
            settings["sasl.mechanism"] = MECHANISM
        return settings

    @property
    def _protocol(self) -> dict[str, str]:
        protocol = PROTOCOLS.get((self.ca is not None, self.users is not None))
        return {} if protocol is None else {"security.protocol": protocol}

    @property
    def password_file(self) -> Path | None:
        """The file with the user's password; None if the brokers ask for no user."""
        if self.users is None:
            return None
        if self.user is None:
            message = f"Kafka at {self.servers} asks for a user, and the address names none: add &user=NAME"
            raise BrokersError(message)
        return Path(self.users) / f"{self.user}.properties"


def brokers(address: str) -> Brokers:
    """Parse an address; BrokersError if it is unusable."""
    scheme, separator, rest = address.partition("://")
    if not separator:
        return Brokers(address)
    servers, _, query = rest.partition("?")
    options = dict(parse_qsl(query))
    complete = bool(servers) and NEEDED.get(scheme) in options and not options.keys() - KNOWN[scheme]
    if not complete or not FOLDER.fullmatch(options.get("users", "/")):
        message = (
            f"{address!r} is not an address of Kafka: write it like ssl://k1:9093,k2:9093?ca=FILE, followed "
            "by &certificate=FILE or &users=FOLDER if brokers ask for them; "
            "the folder's path must begin with / and not contain : { }"
        )
        raise BrokersError(message)
    return Brokers(servers, **options)


def with_user(address: str, user: User) -> str:
    """Return the address for a user; unchanged if the brokers ask for no user."""
    return address if brokers(address).users is None else f"{address}&user={user}"


def _jaas(user: str, password: str) -> str:
    login = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    return f'{login} username="{user}" password="{password}";'


def _password(file: Path) -> str:
    try:
        lines, mode = file.read_text().splitlines(), file.stat().st_mode
    except (FileNotFoundError, PermissionError) as error:
        message = (
            f"{file} does not exist, or user {os.geteuid()} cannot read it: it must contain "
            f"the password of Kafka's user {file.stem}, as password=…; copy it to this machine"
        )
        raise BrokersError(message) from error
    if mode & OTHERS:
        message = f"every user of this machine can read {file}; run: chmod o= {file}"
        raise BrokersError(message)
    passwords = [line.removeprefix("password=") for line in lines if line.startswith("password=")]
    if len(passwords) != 1 or not PASSWORD.fullmatch(passwords[0]):
        message = f'{file} must have exactly one line password=…, without spaces, " and \\'
        raise BrokersError(message)
    return passwords[0]
