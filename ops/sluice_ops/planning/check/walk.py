"""What the hosts hold while a plan is carried out, counted by other means than the planner's. Called by `checker`."""

from collections import Counter, defaultdict
from collections.abc import Iterable

from sluice_ops.model.change import Move, Plan
from sluice_ops.model.ids import HostName
from sluice_ops.model.incarnation import Placement
from sluice_ops.model.resources import Quantum
from sluice_ops.planning.placement.cluster import Cluster

SLACK = 1e-5
"""Sums of cores are floats."""


class Walk:
    """Goes through the moves in their order and counts, from what is free, what each host has left."""

    def __init__(self, plan: Plan, cluster: Cluster) -> None:
        """Begin when batch has given back what it does not keep: no move begins before."""
        self._plan = plan
        self._cluster = cluster
        self._cpu: dict[HostName, float] = defaultdict(float)
        """What is held more than now, or less."""
        self._memory: dict[HostName, int] = defaultdict(int)
        self._tiers: dict[HostName, Counter[str]] = {}
        self._old: list[Move] = []
        """Moves whose old incarnations, or the workers that they let go, are still there."""
        for name in (
            Counter(cluster.batch) - Counter(plan.batch_kept) + Counter(cluster.returning)
        ).elements():
            self._add(name, cluster.rules.batch_quantum, -1)

    def through(self, move: Move) -> list[str]:
        """Put a tier's next incarnation beside all that is there, or else once those before are through; name what is wrong then."""
        if move.in_place:
            self._old.append(move)
            return []
        self._hold(move, move.after, 1)
        if (found := self._wrong(move)) and self._old:
            self._release()
            found = self._wrong(move)
        self._old.append(move)
        return [f"while {move.tier} is prepared: {problem}" for problem in found]

    def lending(self) -> list[str]:
        """Name what is wrong when all are through and batch has all its slots."""
        self._release()
        lent = Counter(self._plan.batch_slots) - Counter(self._plan.batch_kept)
        for name in lent.elements():
            self._add(name, self._cluster.rules.batch_quantum, 1)
        return [f"once batch has its slots: {problem}" for problem in self._full(sorted(lent))]

    def _release(self) -> None:
        for done in self._old:
            if done.in_place:
                self._hold(done, done.after, 1)
            if done.before is not None:
                self._hold(done, done.before, -1)
        self._old = []

    def _hold(self, move: Move, placement: Placement, count: int) -> None:
        spec = self._cluster.tiers[move.tier].spec
        for name, quantum in (
            (placement.driver, spec.driver),
            *((slot, spec.quantum) for slot in placement.slots),
        ):
            self._add(name, quantum, count)
            if name in self._cluster.hosts:
                self._on(name)[move.tier] += count

    def _add(self, name: HostName, quantum: Quantum, count: int) -> None:
        self._cpu[name] += quantum.cpu * count
        self._memory[name] += quantum.memory * count

    def _on(self, name: HostName) -> Counter[str]:
        """Count whose units a host holds."""
        if name not in self._tiers:
            self._tiers[name] = Counter(self._cluster.hosts[name].tiers)
        return self._tiers[name]

    def _wrong(self, move: Move) -> list[str]:
        there = sorted(move.after.hosts & self._cluster.hosts.keys())
        return [*self._full(there), *self._together(move, there)]

    def _full(self, names: Iterable[HostName]) -> Iterable[str]:
        """Name those of the hosts that hold more than they have."""
        for host in (self._cluster.hosts[name] for name in names if name in self._cluster.hosts):
            cpu, memory, most = (
                host.used_cpu + self._cpu[host.name],
                host.used_memory + self._memory[host.name],
                host.capacity,
            )
            if cpu > most.cpu + SLACK or memory > most.memory:
                yield f"{host.name} holds {cpu:g} of {most.cpu:g} cpu and {memory} of {most.memory} MiB"

    def _together(self, move: Move, names: Iterable[HostName]) -> Iterable[str]:
        """Name the hosts that the tier would share with one from which it has to be separate."""
        for group in self._cluster.rules.separate:
            for name in names if move.tier in group else ():
                others = {tier for tier, count in self._on(name).items() if count > 0} & group - {move.tier}
                if others:
                    yield f"{name} would hold {move.tier} beside {', '.join(sorted(others))}, from which it has to be separate"
