"""Reasons of lost executors, from Spark's store, which gets the reason a little later."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from sluice.driver.spark import slots
from sluice.driver.spark.slots import why_gone


def executor(removal_reason: str | None) -> Any:
    """Return the store's summary of an executor. `removeReason` is a Scala Option."""
    reason = SimpleNamespace(isDefined=lambda: removal_reason is not None, get=lambda: removal_reason)
    return SimpleNamespace(id=lambda: "0", removeReason=lambda: reason)


def test_the_driver_waits_until_the_store_has_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter([[executor(None)], [executor(None)], [executor("Command exited with code 75")]])
    monkeypatch.setattr(slots, "summaries", lambda *_, **__: next(looks))
    assert why_gone(cast("Any", None), frozenset({"0"})) == "executor 0 is gone: Command exited with code 75"


def test_without_a_reason_the_log_of_the_slot_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "REASON_SECONDS", 0.2)
    monkeypatch.setattr(slots, "summaries", lambda *_, **__: [])
    assert why_gone(cast("Any", None), frozenset({"0"})) == "executor 0 is gone: the log of its slot says why"
