"""The compiler of the peers' jobs: a JDK, and the jars of a separate lock."""

from pathlib import Path

import pytest

from sluice_ops.site.installation import PlatformError
from sluice_ops.site.jars import locked
from tests.bench.peers import java


def test_a_java_without_a_compiler_is_refused_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(PlatformError, match=r"javac, and there is none at .*: install a JDK"):
        java.home()


def test_the_lock_names_each_jar_once_and_no_address() -> None:
    text = java.LOCK.read_text()
    jars = locked(text)
    assert {jar.folder for jar in jars} == {"flink", "storm"}
    assert len({(jar.folder, jar.name) for jar in jars}) == len(jars)
    assert "://" not in text
