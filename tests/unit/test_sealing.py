"""What was sealed is opened with its own key and for its own purpose only."""

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
def test_only_the_key_and_the_purpose_that_it_was_sealed_for_open_it(
    text: str, secrets: tuple[str, str], purposes: tuple[str, str]
) -> None:
    (mine, other), (purpose, another_purpose) = secrets, purposes
    private = private_key(mine, "test")
    sealed, locked = seal(text, public_key(private), purpose), lock(text, mine, purpose)
    assert (unseal(sealed, private, purpose), unlock(locked, mine, purpose)) == (text, text)
    if other != mine:
        with pytest.raises(SealError):
            unseal(sealed, private_key(other, "test"), purpose)
        with pytest.raises(SealError):
            unlock(locked, other, purpose)
    if another_purpose != purpose:
        with pytest.raises(SealError):
            unseal(sealed, private, another_purpose)
        with pytest.raises(SealError):
            unlock(locked, mine, another_purpose)
        assert derive(mine, purpose) != derive(mine, another_purpose)


@given(text=st.text(max_size=200))
def test_what_was_never_sealed_is_refused_and_nothing_else_happens(text: str) -> None:
    private = private_key("x" * 32, "test")
    for damaged in (text, f"{public_key(private)}.{text}"):
        with pytest.raises(SealError):
            unseal(damaged, private, "")
        with pytest.raises(SealError):
            unlock(damaged, "x" * 32, "")


@pytest.mark.parametrize("key", ["", "a", "é", "A" * 44])
def test_nothing_is_sealed_to_what_is_no_key(key: str) -> None:
    with pytest.raises(SealError, match="no public key"):
        seal("secret", key, "test")
