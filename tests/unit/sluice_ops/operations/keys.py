"""The key of a test's operator."""

from sluice_ops.operations.sealing import X25519PrivateKey, private_key


def private() -> X25519PrivateKey:
    return private_key("x" * 32, "a test")
