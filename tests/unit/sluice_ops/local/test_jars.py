"""Locked jars: exactly these, without transitive dependencies, and with the right checksums."""

import hashlib
import re
import threading
import time
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from sluice_ops.local.fetch_jars import borrow, remove_others
from sluice_ops.local.layout import Layout
from sluice_ops.site import ivy
from sluice_ops.site.jars import LOCK, Jar, faulty, locked, needed


def test_the_lock_has_broker_and_connector_with_checksums_and_no_address() -> None:
    text = LOCK.read_text()
    jars = locked(text)
    assert {jar.folder for jar in jars} == {"broker", "connector", "s3"}
    assert {jar.folder for jar in needed(jars, buckets=False)} == {"broker", "connector"}
    assert all(re.fullmatch("[0-9a-f]{64}", jar.sha256) for jar in jars)
    assert len({(jar.folder, jar.name) for jar in jars}) == len(jars)
    assert "://" not in text


def test_ivy_resolves_each_jar_and_nothing_transitive() -> None:
    jars = locked(LOCK.read_text())
    dependencies = ET.fromstring(ivy.module(jars)).findall("dependencies/dependency")  # noqa: S314 - our own text
    assert len(dependencies) == len(jars)
    assert all(dependency.get("transitive") == "false" for dependency in dependencies)


def test_missing_and_different_jars_are_named_and_good_ones_borrowed(layout: Layout) -> None:
    good, other = (
        Jar("broker", "o", "good", "1", hashlib.sha256(b"good").hexdigest()),
        Jar("broker", "o", "other", "1", "0" * 64),
    )
    lender = layout.home / "lender"
    (lender / "jars" / "broker").mkdir(parents=True)
    (lender / "jars" / "broker" / good.file).write_bytes(b"good")
    (lender / "jars" / "broker" / other.file).write_bytes(b"tampered")
    assert faulty([good, other], layout.home) == {good: "is missing", other: "is missing"}
    borrow([good, other], lender, layout.home)
    assert faulty([good, other], layout.home) == {other: "differs from its checksum in jars.lock"}


def test_only_jars_of_an_older_lock_are_removed(layout: Layout) -> None:
    jar = Jar("connector", "o", "kept", "2", "0" * 64)
    files = [
        layout.home / "jars" / name
        for name in ("connector/kept-2.jar", "connector/kept-1.jar", "connector/note", "s3/other-1.jar")
    ]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    remove_others([jar], layout.home)
    assert [file.exists() for file in files] == [True, False, True, True]


def test_one_start_at_a_time_uses_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ivy, "cache", lambda: tmp_path / "ivy")
    entered = threading.Event()

    def second() -> None:
        with ivy.cache_alone(lambda: time.sleep(0.05)):
            entered.set()

    def halt() -> None:
        raise InterruptedError

    other = threading.Thread(target=second)
    with ivy.cache_alone(halt):
        other.start()
        assert not entered.wait(0.3), "the first one has the cache"
        with pytest.raises(InterruptedError), ivy.cache_alone(halt):
            pass
    other.join(5)
    assert entered.is_set()
