"""How Kafka is reached: the address in the endpoints file, as librdkafka and as Spark want to have it said.

`k1:9092,k2:9092` in the clear, or with TLS `ssl://k1:9093,k2:9093?ca=/etc/sluice/ca.pem&certificate=/etc/sluice/h1.pem`, where
`certificate` is one's own, for brokers that ask for it: a file with the private key first and the certificate, with its chain, after that.
"""

from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

PRIVATE = "ssl://"
KNOWN = frozenset({"ca", "certificate"})


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

    @property
    def client(self) -> dict[str, Any]:
        """Return what librdkafka is told."""
        said = {"bootstrap.servers": self.servers}
        if self.ca is not None:
            said |= {"security.protocol": "SSL", "ssl.ca.location": self.ca}
        if self.certificate is not None:
            said |= {"ssl.certificate.location": self.certificate, "ssl.key.location": self.certificate}
        return said

    @property
    def spark(self) -> dict[str, str]:
        """Return the options of Spark's Kafka connector."""
        said = {"bootstrap.servers": self.servers}
        if self.ca is not None:
            said |= {"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.location": self.ca}
        if self.certificate is not None:
            said |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": self.certificate}
        return {f"kafka.{key}": value for key, value in said.items()}


def brokers(address: str) -> Brokers:
    """Read an address."""
    if not address.startswith(PRIVATE):
        return Brokers(address)
    servers, _, query = address.removeprefix(PRIVATE).partition("?")
    said = dict(parse_qsl(query))
    if said.keys() - KNOWN or "ca" not in said or not servers:
        message = f"{address!r}: write it like ssl://k1:9093,k2:9093?ca=FILE, or with &certificate=FILE after that"
        raise BrokersError(message)
    return Brokers(servers, **said)
