"""A copy of what was read, kept true by watches: after one report has changed, a pass reads one node and not all of them."""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar, cast

from pydantic import BaseModel

from sluice_ops.channel import Channel, Read

M = TypeVar("M", bound=BaseModel)

_KINDS = ("value", "names", "there")


class Mirror:
    """Reads through to the channel only what has changed since, all of it together. For one reading thread."""

    def __init__(self, channel: Channel) -> None:
        """Follow `channel`."""
        self._channel = channel
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], Any] = {}
        """In the order of reading."""
        self._reading: set[tuple[str, str]] = set()
        self._good: dict[str, Any] = {}
        self._made: dict[str, Any] = {}
        """What was made of all nodes of one name (`keep`)."""
        self._making: set[str] = set()
        channel.on_change(self.stale)

    def stale(self, path: str | None) -> None:
        """Have a node read anew; None means all of them, which heals what a watch has missed."""
        with self._lock:
            if path is None:
                for each in (self._known, self._reading, self._made, self._making):
                    each.clear()
                return
            for kind in _KINDS:
                self._known.pop((kind, path), None)
                self._reading.discard((kind, path))
            self._made.pop(name := _name(path), None)
            self._making.discard(name)

    def written(self, path: str) -> None:
        """Have a node read anew that was to be written; what cannot be read was in the way, and its last good value is of no more use."""
        self.stale(path)
        self._good.pop(path, None)

    def heal(self, most: int) -> None:
        """Have so many nodes read anew, those that were read longest ago: it mends what a watch has missed."""
        with self._lock:
            for key in list(islice(self._known, most)):
                del self._known[key]
                self._made.pop(_name(key[1]), None)

    def forget(self) -> None:
        """After everything that is there was read, forget the good values of what was not: it is gone."""
        with self._lock:
            for path in [path for path in self._good if ("value", path) not in self._known]:
                del self._good[path]

    def unchanged(self, names: Iterable[str]) -> dict[str, Any]:
        """Return what was kept under these names of whose nodes none has changed since; the others are to be made and kept now."""
        with self._lock:
            self._making = {name for name in names if name not in self._made}
            return {name: self._made[name] for name in names if name not in self._making}

    def keep(self, made: Mapping[str, Any]) -> None:
        """Keep what was made of all nodes of each name, but where one of them has changed meanwhile."""
        with self._lock:
            self._made.update((name, made[name]) for name in self._making if name in made)
            self._making.clear()

    def read(self, path: str, model: type[M], *, watch: bool = False) -> Read[M] | None:
        """Return the value at `path`; a node that no longer parses keeps its last good value."""
        return self.read_many((path,), model, watch=watch)[0]

    def read_many(self, paths: Sequence[str], model: type[M], *, watch: bool = False) -> list[Read[M] | None]:
        """Return the values at many paths, likewise."""

        def fetch(missing: Sequence[str]) -> Iterable[Any]:
            return [
                self._keep(path, found)
                for path, found in zip(
                    missing, self._channel.read_many(missing, model, watch=watch), strict=True
                )
            ]

        return cast("list[Read[M] | None]", self._once("value", paths, fetch))

    @property
    def refused(self) -> frozenset[str]:
        """The nodes that did not parse when they were last read, and of which there is no good value to go by."""
        return self._channel.refused - self._good.keys()

    def unreadable(self) -> list[str]:
        """Name those of them that are still there."""
        return [path for path in sorted(self.refused) if self._channel.exists(path)]

    def _keep(self, path: str, found: Any) -> Any:
        if found is not None:
            self._good[path] = found
        elif path in self._good and not self._channel.exists(path):
            del self._good[path]
        return self._good.get(path)

    def children(self, path: str, *, watch: bool = False) -> list[str]:
        """Return the names below `path`."""
        return self.children_many((path,), watch=watch)[0]

    def children_many(self, paths: Sequence[str], *, watch: bool = False) -> list[list[str]]:
        """Return the names below many paths."""
        return self._once("names", paths, lambda missing: self._channel.children_many(missing, watch=watch))

    def exists(self, path: str, *, watch: bool = False) -> bool:
        """Tell whether there is a node at `path`."""
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
            found = {path: self._known[kind, path] for path in paths if (kind, path) in self._known}
            missing = [path for path in paths if path not in found]
            self._reading.update((kind, path) for path in missing)
        if missing:
            fetched = dict(zip(missing, fetch(missing), strict=True))
            with self._lock:
                still = [
                    path for path in missing if (kind, path) in self._reading
                ]  # no watch has fired in between: it may be used again
                self._reading.difference_update((kind, path) for path in still)
                self._known.update(((kind, path), fetched[path]) for path in still)
            found |= fetched
        return [found[path] for path in paths]


def _name(path: str) -> str:
    """Return whose node it is: the host's, of `/observed/<host>` and `/hosts/<host>/record`."""
    return path.split("/", 3)[2] if path.count("/") > 1 else ""
