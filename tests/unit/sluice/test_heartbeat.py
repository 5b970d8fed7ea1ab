"""A driver's heartbeat: Python renews its counter by itself, and the JVM by answers."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sluice.driver.process import heartbeat as module
from sluice.driver.process.heartbeat import Pulse


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SLUICE_HEARTBEAT", str(tmp_path / "heartbeat"))
    monkeypatch.setattr(module, "EVERY_SECONDS", 0.01)
    return tmp_path / "heartbeat"


def is_written(file: Path) -> bool:
    """Return whether the file has its first beat. The file is created just before."""
    return file.exists() and file.read_text() != ""


def counters(file: Path) -> tuple[int, int]:
    python, jvm = map(
        int, file.read_text().split() or (0, 0)
    )  # the file is created just before it is written
    return python, jvm


def grown(file: Path, before: tuple[int, int]) -> list[bool]:
    return [now > then for now, then in zip(counters(file), before, strict=True)]


def test_python_beats_by_itself_and_the_jvm_by_its_answers(file: Path) -> None:
    answers = threading.Event()
    answers.set()
    pulse = Pulse(answers.wait)
    pulse.start()
    until(lambda: is_written(file) and counters(file)[1] > 2)
    answers.clear()
    time.sleep(0.1)
    before = counters(file)
    until(lambda: grown(file, before)[0])
    assert grown(file, before) == [True, False]
    answers.set()
    until(lambda: grown(file, before) == [True, True])
    pulse.stop()
    time.sleep(0.1)
    assert not file.exists(), "a stopped heartbeat must remove its file"


def test_a_jvm_that_has_ended_does_not_count_as_hung(file: Path) -> None:
    def ping() -> None:
        raise ConnectionError

    pulse = Pulse(ping)
    pulse.start()
    until(lambda: is_written(file) and counters(file)[1] > 2)
    pulse.stop()
