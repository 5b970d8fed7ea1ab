"""A test's own certificate authority, for servers and clients at 127.0.0.1."""

import datetime as dt
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """Signs certificates for 127.0.0.1."""

    def __init__(self, folder, name):
        self.folder, self.key = folder, ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(
            pem(self.certificate(self.name, self.key, x509.BasicConstraints(ca=True, path_length=None)))
        )

    def certificate(self, subject, key, constraints):
        now = dt.datetime.now(dt.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key.public_key())
        )
        builder = builder.serial_number(x509.random_serial_number()).not_valid_before(
            now - dt.timedelta(hours=1)
        )
        builder = builder.not_valid_after(now + dt.timedelta(hours=1)).add_extension(
            constraints, critical=True
        )
        names = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
        return builder.add_extension(names, critical=False).sign(self.key, hashes.SHA256())

    def sign(self, name):
        """Write a certificate with its key, and the key alone; return both file names."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self.certificate(
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]),
            key,
            x509.BasicConstraints(ca=False, path_length=None),
        )
        encoding = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        file, key_file = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        key_file.write_bytes(key.private_bytes(*encoding))
        file.write_bytes(key_file.read_bytes() + pem(certificate))
        return str(file), str(key_file)


def pem(certificate):
    return certificate.public_bytes(serialization.Encoding.PEM)
