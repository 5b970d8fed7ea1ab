"""Sealing: encrypts texts for one key and one purpose. Used to join hosts."""

from base64 import urlsafe_b64decode, urlsafe_b64encode

from cryptography.fernet import Fernet, InvalidToken
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

KEY_BYTES = 32


class SealError(ValueError):
    """The text was sealed for another key or purpose, or is damaged."""


def derive(secret: str, purpose: str) -> str:
    """Derive a secret for a purpose from a secret of at least 24 random bytes.

    A derived secret tells nothing about another one.
    """
    return _key(secret.encode(), purpose).decode()


def lock(text: str, secret: str, purpose: str) -> str:
    """Seal with a secret."""
    return Fernet(_key(secret.encode(), purpose)).encrypt(text.encode()).decode()


def unlock(text: str, secret: str, purpose: str) -> str:
    """Open a text that was sealed with this secret; SealError if it was not."""
    return _decrypted(text, _key(secret.encode(), purpose))


def private_key(secret: str, purpose: str) -> X25519PrivateKey:
    """Derive the private key from a secret, for a purpose."""
    return X25519PrivateKey.from_private_bytes(urlsafe_b64decode(_key(secret.encode(), purpose)))


def public_key(private: X25519PrivateKey) -> str:
    """Return the public key, to which others seal."""
    return urlsafe_b64encode(private.public_key().public_bytes_raw()).decode()


def seal(text: str, public: str, purpose: str) -> str:
    """Seal a text to the owner of a public key; SealError if the key is invalid."""
    once = X25519PrivateKey.generate()
    try:
        shared = once.exchange(_public(public))
    except ValueError as error:
        message = "the key to seal to is no public key"
        raise SealError(message) from error
    sender = public_key(once)
    return f"{sender}.{Fernet(_key(shared, f'{purpose} {sender} {public}')).encrypt(text.encode()).decode()}"


def unseal(text: str, private: X25519PrivateKey, purpose: str) -> str:
    """Open a text that was sealed to this key; SealError if it was not."""
    sender, _, sealed = text.partition(".")
    try:
        shared = private.exchange(_public(sender))
    except ValueError as error:
        raise SealError(_DAMAGED) from error
    return _decrypted(sealed, _key(shared, f"{purpose} {sender} {public_key(private)}"))


_DAMAGED = "the text was sealed for another key or purpose, or is damaged"


def _decrypted(text: str, key: bytes) -> str:
    try:
        return Fernet(key).decrypt(text.encode()).decode()
    except (InvalidToken, ValueError) as error:
        raise SealError(_DAMAGED) from error


def _public(text: str) -> X25519PublicKey:
    return X25519PublicKey.from_public_bytes(urlsafe_b64decode(text.encode()))


def _key(secret: bytes, purpose: str) -> bytes:
    return urlsafe_b64encode(HKDF(SHA256(), KEY_BYTES, None, f"sluice: {purpose}".encode()).derive(secret))
