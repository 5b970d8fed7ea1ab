"""What ends when a task has hung for too long: its executor, or the driver of a light tier."""

import os
from types import SimpleNamespace

import pytest

from sluice.driver.counters import Flow
from sluice.driver.process import task_watchdog
from sluice.driver.process.task_watchdog import TaskWatchdog
from sluice.driver.spark.workers import NoWorkers, Workers
from sluice_ops.model.tier import Mode

LIMIT = 120.0


class EndedError(Exception):
    """The process has ended."""


@pytest.fixture
def killed(monkeypatch):
    """Let the process's end raise an error; return the executors that Spark was told to end."""

    def end(code):
        raise EndedError(code)

    monkeypatch.setattr(os, "_exit", end)
    return []


def watched(workers, killed, monkeypatch):
    """Return a function that looks at a task without progress for some seconds."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(
        task_watchdog,
        "time",
        SimpleNamespace(monotonic=lambda: clock.now, time=lambda: 0.0, strftime=lambda *_: "", gmtime=id),
    )
    context = SimpleNamespace(
        getTaskThreadDump=lambda *_: SimpleNamespace(isEmpty=lambda: True),
        killAndReplaceExecutor=lambda name: not killed.append(name),
    )
    config = SimpleNamespace(
        session=SimpleNamespace(sparkContext=SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: context))),
        tier=SimpleNamespace(hangs_after=LIMIT, mode=Mode.BATCH),
        workers=workers,
        flow=Flow(),
    )
    watchdog = TaskWatchdog(config, None)
    monkeypatch.setattr(watchdog, "_counts", dict)

    def look(seconds):
        end = clock.now + seconds
        while clock.now < end:
            clock.now += 2
            watchdog.check({7: ("127.0.1.1/driver", 0)}, {})
        return config.flow

    return look


def test_a_task_that_hangs_ends_its_executor(killed, monkeypatch):
    look = watched(Workers(), killed, monkeypatch)
    assert "its executor is ended after 120 s" in look(LIMIT - 10).hung.sentence
    assert killed == []
    assert look(20).executors_ended == 1
    assert killed == ["driver"]


def test_a_task_that_hangs_in_a_light_tier_ends_the_driver(killed, monkeypatch):
    look = watched(NoWorkers(), killed, monkeypatch)
    assert "its driver is ended after 120 s" in look(LIMIT - 10).hung.sentence
    with pytest.raises(EndedError):
        look(20)
    assert killed == []
