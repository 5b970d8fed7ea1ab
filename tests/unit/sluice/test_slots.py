"""What the driver says of executors that are gone, by Spark's store, which hears of it a little later."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from sluice.driver.spark import slots
from sluice.driver.spark.slots import why_gone


def executor(said: str | None) -> Any:
    """Return what the store has of one; `removeReason` is Scala's Option."""
    reason = SimpleNamespace(isDefined=lambda: said is not None, get=lambda: said)
    return SimpleNamespace(id=lambda: "0", removeReason=lambda: reason)


def test_it_waits_until_the_store_has_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter([[executor(None)], [executor(None)], [executor("Command exited with code 75")]])
    monkeypatch.setattr(slots, "summaries", lambda *_, **__: next(looks))
    assert why_gone(cast("Any", None), frozenset({"0"})) == "executor 0 is gone: Command exited with code 75"


def test_it_names_the_log_where_no_reason_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "REASON_SECONDS", 0.2)
    monkeypatch.setattr(slots, "summaries", lambda *_, **__: [])
    assert why_gone(cast("Any", None), frozenset({"0"})) == "executor 0 is gone: the log of its slot says why"
