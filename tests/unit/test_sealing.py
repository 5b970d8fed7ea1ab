"""A sealed text opens only with its own key and for its own purpose."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_ops.operations.sealing import (
    SealError,
    derive,
    lock,
    private_key,
    public_key,
    seal,
    unlock,
    unseal,
)

SECRETS = st.text(st.characters(codec="utf-8"), min_size=24, max_size=48)
PURPOSES = st.text(st.characters(codec="utf-8"), max_size=20)


@given(
    text=st.text(st.characters(codec="utf-8")),
    secrets=st.tuples(SECRETS, SECRETS),
    purposes=st.tuples(PURPOSES, PURPOSES),
)
def test_a_sealed_text_opens_only_with_its_key_and_purpose(
    text: str, secrets: tuple[str, str], purposes: tuple[str, str]
) -> None:
    (secret, other_secret), (purpose, other_purpose) = secrets, purposes
    private = private_key(secret, "test")
    sealed, locked = seal(text, public_key(private), purpose), lock(text, secret, purpose)
    assert (unseal(sealed, private, purpose), unlock(locked, secret, purpose)) == (text, text)
    if other_secret != secret:
        with pytest.raises(SealError):
            unseal(sealed, private_key(other_secret, "test"), purpose)
        with pytest.raises(SealError):
            unlock(locked, other_secret, purpose)
    if other_purpose != purpose:
        with pytest.raises(SealError):
            unseal(sealed, private, other_purpose)
        with pytest.raises(SealError):
            unlock(locked, secret, other_purpose)
        assert derive(secret, purpose) != derive(secret, other_purpose)


@given(text=st.text(max_size=200))
def test_a_text_that_was_never_sealed_is_refused_as_such(text: str) -> None:
    private = private_key("x" * 32, "test")
    for damaged in (text, f"{public_key(private)}.{text}"):
        with pytest.raises(SealError):
            unseal(damaged, private, "")
        with pytest.raises(SealError):
            unlock(damaged, "x" * 32, "")


@pytest.mark.parametrize("key", ["", "a", "é", "A" * 44])
def test_sealing_to_an_invalid_public_key_is_refused(key: str) -> None:
    with pytest.raises(SealError, match="no public key"):
        seal("secret", key, "test")
