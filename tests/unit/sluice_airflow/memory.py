"""The part of the channel that tier watches read, in memory."""

from typing import Any

from pydantic import BaseModel

from sluice_ops.channel import Read


class MemoryChannel:
    """Nodes in a dictionary; every read returns the present value."""

    def __init__(self) -> None:
        self._nodes: dict[str, BaseModel] = {}

    def put(self, path: str, value: BaseModel) -> None:
        self._nodes[path] = value

    def read(self, path: str, model: type[Any], *, watch: bool = False) -> Read[Any] | None:  # noqa: ARG002
        value = self._nodes.get(path)
        assert value is None or isinstance(value, model)
        return None if value is None else Read(value, 0, 0)

    def children(self, path: str, *, watch: bool = False) -> list[str]:  # noqa: ARG002
        below = f"{path}/"
        return sorted(
            {node.removeprefix(below).split("/")[0] for node in self._nodes if node.startswith(below)}
        )
