"""A copy of what was read, kept true by watches: after one report has changed, a pass reads one node and not all of them."""

import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast

from pydantic import BaseModel

from ops.channel import Channel, Read

M = TypeVar("M", bound=BaseModel)

_KINDS = ("value", "names", "there")


class Mirror:
    """Reads through to the channel only what has changed since; `stale(None)` has everything read anew. For one reading thread."""

    def __init__(self, channel: Channel) -> None:
        """Follow `channel`."""
        self._channel = channel
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], Any] = {}
        self._reading: set[tuple[str, str]] = set()
        self._good: dict[str, Any] = {}
        channel.on_change(self.stale)

    def stale(self, path: str | None) -> None:
        """Have a node read anew; None means all of them, which heals what a watch has missed."""
        with self._lock:
            if path is None:
                self._known.clear()
                self._reading.clear()
                return
            for kind in _KINDS:
                self._known.pop((kind, path), None)
                self._reading.discard((kind, path))

    def read(self, path: str, model: type[M], *, watch: bool = False) -> Read[M] | None:
        """Return the value at `path`; a node that no longer parses keeps its last good value."""

        def fetch() -> Read[M] | None:
            found = self._channel.read(path, model, watch=watch)
            if found is not None:
                self._good[path] = found
            elif not self._channel.exists(path):
                self._good.pop(path, None)
            return cast("Read[M] | None", self._good.get(path))

        return cast("Read[M] | None", self._once("value", path, fetch))

    def children(self, path: str, *, watch: bool = False) -> list[str]:
        """Return the names below `path`."""
        return cast("list[str]", self._once("names", path, lambda: self._channel.children(path, watch=watch)))

    def exists(self, path: str, *, watch: bool = False) -> bool:
        """Tell whether there is a node at `path`."""
        return bool(self._once("there", path, lambda: self._channel.exists(path, watch=watch)))

    def _once(self, kind: str, path: str, fetch: Callable[[], Any]) -> Any:
        key = (kind, path)
        with self._lock:
            if key in self._known:
                return self._known[key]
            self._reading.add(key)
        value = fetch()
        with self._lock:
            if key in self._reading:  # no watch has fired in between: it may be used again
                self._reading.discard(key)
                self._known[key] = value
        return value
