"""Whom the platform's own JVMs trust, where they ask outside. Called by `fetch_jars`."""

import ssl
import warnings
from contextlib import suppress
from pathlib import Path

from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12
from cryptography.x509 import load_der_x509_certificate

_PUBLIC = "certificates"
"""A file of certificates has to have a password, though everybody may read it."""


def trusting(store: Path) -> tuple[str, ...]:
    """Return the options of a JVM that trusts whom this machine trusts, a company's own authority too; Java has a list of its own."""
    known = []
    for number, found in enumerate(ssl.create_default_context().get_ca_certs(binary_form=True)):
        with (
            suppress(ValueError),
            warnings.catch_warnings(action="ignore"),
        ):  # one that is not well-formed helps nobody
            known.append(pkcs12.PKCS12Certificate(load_der_x509_certificate(found), str(number).encode()))
    if not known:
        return ()
    store.write_bytes(pkcs12.serialize_java_truststore(known, BestAvailableEncryption(_PUBLIC.encode())))
    return f"-Djavax.net.ssl.trustStore={store}", f"-Djavax.net.ssl.trustStorePassword={_PUBLIC}"
