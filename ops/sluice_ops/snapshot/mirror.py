"""A copy of the channel's nodes that watches keep up to date.

After one report has changed, a pass reads one node and not all nodes.
"""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar, cast

from pydantic import BaseModel

from sluice_ops.channel import Channel, Read

M = TypeVar("M", bound=BaseModel)

_KINDS = ("value", "names", "there")


class Mirror:
    """Reads from the channel only the nodes that may have changed, all in one request.

    For one reading thread.
    """

    def __init__(self, channel: Channel) -> None:
        """Follow `channel`."""
        self._channel = channel
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], Any] = {}
        """The cached values, oldest first."""
        self._reading: set[tuple[str, str]] = set()
        self._last_good: dict[str, Any] = {}
        self._kept: dict[str, Any] = {}
        """The last good value of each node."""
        self._to_keep: set[str] = set()
        channel.on_change(self.invalidate)

    def invalidate(self, path: str | None) -> None:
        """Drop a node from the cache; None drops all nodes, which also corrects missed watches."""
        with self._lock:
            if path is None:
                for cache in (self._known, self._reading, self._kept, self._to_keep):
                    cache.clear()
                return
            for kind in _KINDS:
                self._known.pop((kind, path), None)
                self._reading.discard((kind, path))
            self._kept.pop(name := _name(path), None)
            self._to_keep.discard(name)

    def invalidate_written(self, path: str) -> None:
        """Drop a node that was written, or whose write failed, and its last good value."""
        self.invalidate(path)
        self._last_good.pop(path, None)

    def invalidate_oldest(self, most: int) -> None:
        """Drop the `most` nodes that were read longest ago, which corrects missed watches."""
        with self._lock:
            for key in list(islice(self._known, most)):
                del self._known[key]
                self._kept.pop(_name(key[1]), None)

    def forget_missing(self) -> None:
        """Forget the last good values of nodes that are gone.

        Used after all existing nodes were read.
        """
        with self._lock:
            for path in [path for path in self._last_good if ("value", path) not in self._known]:
                del self._last_good[path]

    def unchanged(self, names: Iterable[str]) -> dict[str, Any]:
        """Return the objects under these names whose nodes have not changed.

        The caller builds the others and calls `keep`.
        """
        with self._lock:
            self._to_keep = {name for name in names if name not in self._kept}
            return {name: self._kept[name] for name in names if name not in self._to_keep}

    def keep(self, built: Mapping[str, Any]) -> None:
        """Keep objects, each built from all nodes of one name; not those with a changed node."""
        with self._lock:
            self._kept.update((name, built[name]) for name in self._to_keep if name in built)
            self._to_keep.clear()

    def read(self, path: str, model: type[M], *, watch: bool = False) -> Read[M] | None:
        """Return the value at `path`; a node that no longer parses keeps its last good value."""
        return self.read_many((path,), model, watch=watch)[0]

    def read_many(self, paths: Sequence[str], model: type[M], *, watch: bool = False) -> list[Read[M] | None]:
        """Return the values at many paths, as `read` does."""

        def fetch(missing: Sequence[str]) -> Iterable[Any]:
            return [
                self._remember(path, value)
                for path, value in zip(
                    missing, self._channel.read_many(missing, model, watch=watch), strict=True
                )
            ]

        return cast("list[Read[M] | None]", self._once("value", paths, fetch))

    @property
    def refused(self) -> frozenset[str]:
        """The nodes that did not parse when they were last read, and have no last good value."""
        return self._channel.refused - self._last_good.keys()

    def unreadable(self) -> list[str]:
        """Name the refused nodes that still exist."""
        return [path for path in sorted(self.refused) if self._channel.exists(path)]

    def _remember(self, path: str, value: Any) -> Any:
        if value is not None:
            self._last_good[path] = value
        elif path in self._last_good and not self._channel.exists(path):
            del self._last_good[path]
        return self._last_good.get(path)

    def children(self, path: str, *, watch: bool = False) -> list[str]:
        """Return the names below `path`."""
        return self.children_many((path,), watch=watch)[0]

    def children_many(self, paths: Sequence[str], *, watch: bool = False) -> list[list[str]]:
        """Return the names below many paths."""
        return self._once("names", paths, lambda missing: self._channel.children_many(missing, watch=watch))

    def exists(self, path: str, *, watch: bool = False) -> bool:
        """Tell whether a node exists at `path`."""
        return bool(
            self._once(
                "there",
                (path,),
                lambda missing: [self._channel.exists(path, watch=watch) for path in missing],
            )[0]
        )

    def _once(
        self, kind: str, paths: Sequence[str], fetch: Callable[[Sequence[str]], Iterable[Any]]
    ) -> list[Any]:
        with self._lock:
            results = {path: self._known[kind, path] for path in paths if (kind, path) in self._known}
            missing = [path for path in paths if path not in results]
            self._reading.update((kind, path) for path in missing)
        if missing:
            fetched = dict(zip(missing, fetch(missing), strict=True))
            with self._lock:
                # no watch has fired since the read began: these results may be cached
                current = [path for path in missing if (kind, path) in self._reading]
                self._reading.difference_update((kind, path) for path in current)
                self._known.update(((kind, path), fetched[path]) for path in current)
            results |= fetched
        return [results[path] for path in paths]


def _name(path: str) -> str:
    """Return the second part of a path: the host of `/observed/<host>`, for example."""
    return path.split("/", 3)[2] if path.count("/") > 1 else ""
