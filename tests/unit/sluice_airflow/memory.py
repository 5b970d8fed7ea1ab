"""The part of the channel that tasks and tier watches use, in memory."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel

from sluice_airflow.triggers import waiting
from sluice_ops.channel import Read
from sluice_ops.model.approval import Asked
from sluice_ops.model.change import ChangeRecord, ChangeSpec, ChangeState, Plan


class MemoryChannel:
    """Nodes in a dictionary; every read returns the present value."""

    def __init__(self) -> None:
        self._nodes: dict[str, BaseModel] = {}
        self._answers: dict[str, tuple[str, BaseModel]] = {}

    def put(self, path: str, value: BaseModel) -> None:
        self._nodes[path] = value

    def on_create(self, path: str, answered: str, value: BaseModel) -> None:
        """Put a value at `answered` as soon as a node is created at `path`."""
        self._answers[path] = (answered, value)

    def create(self, path: str, value: BaseModel) -> bool:
        if path in self._nodes:
            return False
        self.put(path, value)
        if path in self._answers:
            self.put(*self._answers[path])
        return True

    def delete(self, path: str) -> None:
        del self._nodes[path]

    def exists(self, path: str, *, watch: bool = False) -> bool:  # noqa: ARG002
        return path in self._nodes

    def of(self, model: type[Any]) -> list[Any]:
        """Return the values of one model."""
        return [value for value in self._nodes.values() if isinstance(value, model)]

    def read(self, path: str, model: type[Any], *, watch: bool = False) -> Read[Any] | None:  # noqa: ARG002
        value = self._nodes.get(path)
        assert value is None or isinstance(value, model)
        return None if value is None else Read(value, 0, 0)

    def read_many(self, paths: Sequence[str], model: type[Any]) -> list[Read[Any] | None]:
        return [self.read(path, model) for path in paths]

    def children(self, path: str, *, watch: bool = False) -> list[str]:  # noqa: ARG002
        below = f"{path}/"
        return sorted(
            {node.removeprefix(below).split("/")[0] for node in self._nodes if node.startswith(below)}
        )


def waiting_pause(change: str, approved_by: str = "") -> ChangeRecord:
    """Return a pause that anna asked for in Airflow, which waits for approval."""
    asked = Asked(
        reasons={"always": "a pause of every tier always needs a second person here"},
        plan="every tier writes nothing",
        person="anna",
        within_seconds=3600,
        approved_by=approved_by,
    )
    return ChangeRecord(
        id=change,
        spec=ChangeSpec(kind="pause"),
        plan=Plan(),
        state=ChangeState.WAITING,
        by="airflow:pause_pipeline/r1",
        started_at=time.time(),
        asked=asked,
    )


@contextmanager
def _bell() -> Iterator[asyncio.Event]:
    yield asyncio.Event()


def share_with_triggers(channel: Any, monkeypatch: pytest.MonkeyPatch, *modules: ModuleType) -> None:
    """Let the triggers of these modules read the channel, and look again at once."""
    shared = SimpleNamespace(bell=_bell, get=lambda: channel)
    for module in (*modules, waiting):
        monkeypatch.setattr(module, "shared_channel", lambda _: shared)
    monkeypatch.setattr(waiting, "RECHECK_SECONDS", 0.01)
