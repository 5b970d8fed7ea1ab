"""Unusable tokens: each is refused with the file and the next step, before any connection."""

import json
from pathlib import Path

import pytest

from sluice_ops.model.access import HostCredential
from sluice_ops.operations.joining import JoinError, Token, join
from sluice_ops.site.endpoints import EndpointsError

GOOD = {"zookeeper": "127.0.0.1:1/sluice", "host": "h1", "roles": {}, "key": "b"}
OLDER_TOKEN = {"zookeeper": "127.0.0.1:1/sluice", "name": "a", "key": "b"}
"""A token of an earlier version."""
H1 = HostCredential("h1", "x" * 32)


@pytest.mark.parametrize(
    "written",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        json.dumps(OLDER_TOKEN).encode(),
        *(json.dumps({**GOOD, "zookeeper": address}).encode() for address in ("", "a:b:c", ":2181")),
    ],
)
def test_a_file_that_is_no_token_is_refused(tmp_path: Path, written: bytes) -> None:
    file = tmp_path / "h1.token"
    file.write_bytes(written)
    with pytest.raises(
        JoinError,
        match=rf"^{file} is no token, or user \d+ cannot read it; an operator makes one: sluice token",
    ):
        join(file, H1)


def test_a_token_for_another_host_is_refused_and_its_key_is_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "h1.token"
    file.write_text(json.dumps({**GOOD, "key": "k" * 43}))
    with pytest.raises(
        JoinError,
        match=r"is a token for h1, but this agent is to serve h2: `sluice token h2\.token --host h2`",
    ) as refused:
        join(file, HostCredential("h2", "x" * 32))
    assert file.exists(), "the token is still valid for h1"
    assert "kkk" not in str(refused.value) + repr(Token.model_validate_json(file.read_text()))


def test_a_missing_tls_file_of_a_token_is_named(tmp_path: Path) -> None:
    file = tmp_path / "h1.token"
    file.write_text(json.dumps({**GOOD, "tls": {"ca": "/nowhere/ca.pem"}}))
    with pytest.raises(EndpointsError, match=r"/nowhere/ca\.pem does not exist"):
        join(file, H1)
    assert file.exists(), "the token is still valid"
