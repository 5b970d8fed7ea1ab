"""Tokens that cannot be used: each is refused in a line that names the file and the way out, before anything is asked."""

import json
from pathlib import Path

import pytest

from ops.endpoints import EndpointsError
from ops.joining import JoinError, join

GOOD = {"zookeeper": "127.0.0.1:1/sluice", "name": "a", "key": "b"}


@pytest.mark.parametrize(
    "written",
    [b"", b"{", b"\xff\xfe", b"[]", *(json.dumps({**GOOD, "zookeeper": wrong}).encode() for wrong in ("", "a:b:c", ":2181"))],
)
def test_what_is_no_token_is_refused(tmp_path: Path, written: bytes) -> None:
    file = tmp_path / "h1.token"
    file.write_bytes(written)
    with pytest.raises(JoinError, match=rf"^{file} is no token that can be read by user \d+: `sluice token` makes one"):
        join(file)


def test_a_file_of_tls_that_the_token_names_and_that_is_not_here_is_named(tmp_path: Path) -> None:
    file = tmp_path / "h1.token"
    file.write_text(json.dumps({**GOOD, "tls": {"ca": "/nowhere/ca.pem"}}))
    with pytest.raises(EndpointsError, match=r"/nowhere/ca\.pem is not there"):
        join(file)
    assert file.exists(), "the token is still good"
