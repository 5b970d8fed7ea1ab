"""A channel in memory with unreadable nodes, which reports every change."""

from simulation.memory import MemoryChannel

from sluice_ops.channel import ANY_VERSION, ConflictError


class DamagedChannel(MemoryChannel):
    """A read of a damaged node is refused, and the node cannot be created."""

    def __init__(self):
        super().__init__()
        self.damaged = set()
        self.refused = frozenset()
        self.followers = []

    def on_change(self, follower):
        self.followers.append(follower)

    def _tell(self, path):
        for follower in self.followers:
            follower(path)

    def damage(self, path):
        self.damaged.add(path)
        self._tell(path)

    def mend(self, path):
        self.damaged.discard(path)
        self._tell(path)

    def read_many(self, many, model, **_watch):
        self.refused = (self.refused - {*many}) | (self.damaged & {*many})
        return [None if path in self.damaged else self.read(path, model) for path in many]

    def exists(self, path, **_watch):
        return path in self.damaged or super().exists(path)

    def multi(self, writes):
        for write in writes:
            if write.path in self.damaged and write.version != ANY_VERSION:
                raise ConflictError(write.path)
            if write.path in self.damaged:
                self.nodes.setdefault(write.path, (None, 0, None))
                self.made.setdefault(write.path, self.writes)
        super().multi(writes)
        for write in writes:
            self.damaged.discard(write.path)
            self._tell(write.path)

    def put(self, path, value, **how):
        self.damaged.discard(path)
        super().put(path, value, **how)
        self._tell(path)

    def delete(self, path):
        self.damaged.discard(path)
        super().delete(path)
        self._tell(path)
