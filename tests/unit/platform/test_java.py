"""Finding a Java: 17 or 21, from JAVA_HOME, then PATH, then the one installed here."""

from pathlib import Path

import pytest

from ops.platform import java
from ops.platform.layout import PlatformError


def fake(home: Path, version: str) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
    program.chmod(0o755)
    return home


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    return tmp_path


def test_java_home_goes_before_path_when_it_fits(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = fake(bare / "jdk21", "21.0.2")
    monkeypatch.setenv("PATH", str(fake(bare / "jdk17", "17.0.1") / "bin"))
    monkeypatch.setenv("JAVA_HOME", str(wanted))
    assert java.find(bare / "private") == wanted


def test_a_java_home_that_is_too_old_is_passed_over_for_one_that_fits(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake(bare / "jdk8", "1.8.0_392")))
    assert java.find_among([bare / "jdk8", fake(bare / "private" / "jdk-17", "17.0.9")])[0] == bare / "private" / "jdk-17"


def test_without_any_java_and_without_a_way_to_fetch_one_it_says_what_it_found_and_what_to_do(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake(bare / "jdk11", "11.0.1")))

    def unreachable(*_words: object, **_options: object) -> str:
        message = "no network"
        raise OSError(message)

    monkeypatch.setattr("jdk.install", unreachable)
    with pytest.raises(PlatformError, match=r"Java 17 or 21 is needed .*jdk11 is Java 11.*no network.*JAVA_HOME"):
        java.find(bare / "private")
