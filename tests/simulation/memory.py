"""The channel in memory: writes behave as in ZooKeeper, and values go through JSON."""

from collections.abc import Sequence
from copy import copy, deepcopy

from pydantic import ValidationError

from sluice_ops.channel import ANY_VERSION, ConflictError, Guard, Read, Write


class MemoryChannel:
    """Nodes by path, with versions."""

    def __init__(self):
        self.nodes = {}
        self.made = {}
        self.made_times = {}
        self.clock = 0.0
        """The test's time in place of ZooKeeper's clock."""
        self.writes = 0
        self.below = {}
        self.refused = frozenset()
        """The nodes that did not parse when they were last read."""

    def __deepcopy__(self, memo):
        """Share nodes and values with the copy: they are never changed, but replaced."""
        twin = memo[id(self)] = copy(self)
        memo |= {id(dictionary): dictionary.copy() for dictionary in (self.nodes, self.made, self.made_times)}
        memo |= {id(value): value for _, _, value in self.nodes.values()}
        memo[id(self.below)] = {path: names.copy() for path, names in self.below.items()}
        vars(twin).update(deepcopy(vars(self), memo))
        return twin

    def read(self, path, model, **_watch):
        node = self.nodes.get(path)
        if node is None:
            if path in self.refused:
                self.refused -= {path}
            return None
        data, version, parsed = node
        if type(parsed) is not model:
            try:
                parsed = model.model_validate_json(data, extra="allow")
            except ValidationError:
                self.refused |= {path}
                return None
            self.nodes[path] = (data, version, parsed)
        if path in self.refused:
            self.refused -= {path}
        return Read(parsed, version, self.made[path])

    def read_many(self, many, model, **_watch):
        return [self.read(path, model) for path in many]

    def children(self, path, **_watch):
        return sorted(self.below.get(path, ()))

    def children_many(self, many, **_watch):
        return [self.children(path) for path in many]

    def exists(self, path, **_watch):
        return path in self.nodes

    def version(self, path):
        return self.nodes[path][1] if path in self.nodes else None

    def made_at(self, path):
        return self.made_times[path] if path in self.nodes else None

    def sync(self, path):
        """Do nothing: a channel in memory is always current."""

    def put(self, path, value, *, version=None):
        if version is not None and self.nodes.get(path, (None, None, None))[1] != version:
            raise ConflictError(path)
        self._set(path, value)

    def create(self, path, value, **_how):
        if path in self.nodes:
            return False
        self._set(path, value)
        return True

    def delete(self, path):
        for name in list(self.below.get(path, ())):
            self.delete(f"{path}/{name}")
        self.nodes.pop(path, None)
        parent, _, name = path.rpartition("/")
        self.below.get(parent, set()).discard(name)

    def multi(self, writes: Sequence[Write | Guard]):
        touched = [write.path for write in writes]
        assert len(touched) == len(set(touched)), "a multi writes a node at most once"
        for write in writes:
            node = self.nodes.get(write.path)
            if isinstance(write, Write) and write.version is None:
                if write.value is not None and node is not None:
                    raise ConflictError(write.path)
            elif node is None or write.version not in {node[1], ANY_VERSION}:
                raise ConflictError(write.path)
        for write in writes:
            if isinstance(write, Guard):
                continue
            if write.value is None:
                self.delete(write.path)
            else:
                self._set(write.path, write.value)

    def _set(self, path, value):
        version = self.nodes[path][1] + 1 if path in self.nodes else 0
        self.writes += 1
        if version == 0:
            self.made[path] = self.writes
            self.made_times[path] = self.clock
        self.nodes[path] = (value.model_dump_json(), version, None)
        while path:
            parent, _, name = path.rpartition("/")
            self.below.setdefault(parent, set()).add(name)
            path = parent
