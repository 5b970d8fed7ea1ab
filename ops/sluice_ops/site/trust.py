"""A truststore with this machine's authorities, for the JVM that fetches jars."""

import ssl
import warnings
from contextlib import suppress
from pathlib import Path

from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12
from cryptography.x509 import load_der_x509_certificate

_PUBLIC = "certificates"
"""A truststore must have a password, although its content is public."""


def truststore_options(store: Path) -> tuple[str, ...]:
    """Write a truststore, and return the options of a JVM that uses it.

    Java has its own list of authorities, which lacks a company's own. Returns no options if this
    machine has no authorities.
    """
    certificates = []
    for number, data in enumerate(ssl.create_default_context().get_ca_certs(binary_form=True)):
        # skip malformed certificates
        with suppress(ValueError), warnings.catch_warnings(action="ignore"):
            certificate = load_der_x509_certificate(data)
            certificates.append(pkcs12.PKCS12Certificate(certificate, str(number).encode()))
    if not certificates:
        return ()
    encryption = BestAvailableEncryption(_PUBLIC.encode())
    store.write_bytes(pkcs12.serialize_java_truststore(certificates, encryption))
    return f"-Djavax.net.ssl.trustStore={store}", f"-Djavax.net.ssl.trustStorePassword={_PUBLIC}"
