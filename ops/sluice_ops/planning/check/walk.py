"""The use of the hosts while a plan is carried out, counted without the planner's code.

`checker` calls this module.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable

from sluice_ops.model.change import Move, Plan
from sluice_ops.model.ids import HostName
from sluice_ops.model.incarnation import Placement
from sluice_ops.model.resources import Quantum
from sluice_ops.model.tier import TierSpec
from sluice_ops.planning.placement.cluster import Cluster

SLACK = 1e-5
"""The slack for comparing sums of cores, which are floats. Unit: cores."""

_Unit = tuple[HostName, Quantum]
"""The host and the size of a driver or a worker."""


class Walk:
    """Goes through the moves in order and counts the cpu and memory that each host holds."""

    def __init__(self, plan: Plan, cluster: Cluster) -> None:
        """Begin after batch gave back the slots that it does not keep. No move begins earlier."""
        self._plan = plan
        self._cluster = cluster
        self._cpu: dict[HostName, float] = defaultdict(float)
        """The difference to the cores held before the plan; negative if less is held."""
        self._memory: dict[HostName, int] = defaultdict(int)
        """The difference to the MiB held before the plan."""
        self._tiers: dict[HostName, Counter[str]] = {}
        self._old: list[tuple[Move, Counter[_Unit]]] = []
        """Moves whose old incarnations, or released workers, still hold their room: these units."""
        for name in (
            Counter(cluster.batch) - Counter(plan.batch_kept) + Counter(cluster.returning)
        ).elements():
            self._add(name, cluster.rules.batch_quantum, -1)

    def through(self, move: Move) -> list[str]:
        """Place the next incarnation or joining workers beside all units; return the problems.

        Joining workers take the room of workers that their own tier has released before. If there
        are problems, release the old incarnations of earlier moves and check again.
        """
        before = () if move.before is None else _units(move.before, self._spec(move))
        after = _units(move.after, self._spec(move))
        arriving, leaving = Counter(after), Counter(before)
        if move.in_place:
            arriving, leaving = arriving - leaving, leaving - arriving
            self._hold(move, leaving, -1)
        self._hold(move, arriving, 1)
        if (problems := self._problems(move)) and self._old:
            self._release()
            problems = self._problems(move)
        if move.in_place:
            self._hold(move, leaving, 1)
        self._old.append((move, leaving))
        return [f"while {move.tier} is prepared: {problem}" for problem in problems]

    def lending(self) -> list[str]:
        """Return the problems after all moves, when batch has all its slots."""
        self._release()
        lent = Counter(self._plan.batch_slots) - Counter(self._plan.batch_kept)
        for name in lent.elements():
            self._add(name, self._cluster.rules.batch_quantum, 1)
        return [f"once batch has its slots: {problem}" for problem in self._overfull(sorted(lent))]

    def _release(self) -> None:
        for move, leaving in self._old:
            self._hold(move, leaving, -1)
        self._old = []

    def _spec(self, move: Move) -> TierSpec:
        return self._cluster.tiers[move.tier].spec

    def _hold(self, move: Move, units: Counter[_Unit], count: int) -> None:
        for name, quantum in units.elements():
            self._add(name, quantum, count)
            if name in self._cluster.hosts:
                self._tiers_on(name)[move.tier] += count

    def _add(self, name: HostName, quantum: Quantum, count: int) -> None:
        self._cpu[name] += quantum.cpu * count
        self._memory[name] += quantum.memory * count

    def _tiers_on(self, name: HostName) -> Counter[str]:
        """Return the units that a host holds, counted by tier."""
        if name not in self._tiers:
            self._tiers[name] = Counter(self._cluster.hosts[name].tiers)
        return self._tiers[name]

    def _problems(self, move: Move) -> list[str]:
        added = move.after.slots[move.kept :] if move.in_place else move.after.hosts
        names = sorted({*added} & self._cluster.hosts.keys())
        return [*self._overfull(names), *self._not_separate(move, names)]

    def _overfull(self, names: Iterable[HostName]) -> Iterable[str]:
        """Name the hosts that hold more than their capacity."""
        for host in (self._cluster.hosts[name] for name in names if name in self._cluster.hosts):
            cpu, memory, most = (
                host.used_cpu + self._cpu[host.name],
                host.used_memory + self._memory[host.name],
                host.capacity,
            )
            if cpu > most.cpu + SLACK or memory > most.memory:
                yield f"{host.name} holds {cpu:g} of {most.cpu:g} cpu and {memory} of {most.memory} MiB"

    def _not_separate(self, move: Move, names: Iterable[HostName]) -> Iterable[str]:
        """Name the hosts that the tier would share with a tier from which it has to be separate."""
        for group in self._cluster.rules.separate:
            for name in names if move.tier in group else ():
                held_tiers = {tier for tier, count in self._tiers_on(name).items() if count > 0}
                others = held_tiers & group - {move.tier}
                if others:
                    yield (
                        f"{name} would hold {move.tier} beside {', '.join(sorted(others))}, from which it "
                        "has to be separate"
                    )


def _units(placement: Placement, spec: TierSpec) -> list[_Unit]:
    return [(placement.driver, spec.driver), *((slot, spec.quantum) for slot in placement.slots)]
