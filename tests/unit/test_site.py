"""The site file: what cannot be used is refused, with the key and the way out."""

from pathlib import Path

import pytest

from ops.site import SiteError, load

HOST = "{name: h1, address: 127.0.1.1, capacity: {cpu: 1, memory: 1g}}"


def refused(path: Path) -> str:
    with pytest.raises(SiteError) as told:
        load(path)
    return str(told.value).removeprefix(f"{path}")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (f"pipeline: p\nhosts: [{HOST}, {HOST}]", ": hosts: h1 is there more than once; give each host a name of its own"),
        (f"pipeline: p\nhosts: [{HOST}]\nreboot: []", ": reboot: Tuple should have at least 1 item"),
        ("- pipeline", ": expected keys such as `pipeline:` and `hosts:`, found list"),
    ],
)
def test_what_makes_no_sense_is_refused_by_its_key(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "site.yaml"
    path.write_text(text)
    assert refused(path).startswith(why)


def test_what_is_no_text_or_cannot_be_read_is_refused_too(tmp_path: Path) -> None:
    path = tmp_path / "site.yaml"
    path.write_bytes(b"pipeline: \xff\xfe")
    assert refused(path).startswith(": not YAML")
    assert " cannot be read by user " in refused(tmp_path)
    assert "there is no such file" in refused(tmp_path / "none.yaml")
