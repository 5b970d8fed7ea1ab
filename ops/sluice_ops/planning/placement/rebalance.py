"""Which workers move so that no host carries much more load than the others.

The load of a host is the processor time that its workers use: for each, the busy part of its time
times the cores of its quantum. A busy host without that much load has other programs, whose load
counts too.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice

from sluice_ops.model.change import WorkerMove
from sluice_ops.model.ids import HostName, TierName
from sluice_ops.model.incarnation import Placement
from sluice_ops.planning.placement.cluster import (
    BURST_ZONE,
    TOLERANCE,
    Cluster,
    RefusedError,
    TierNow,
    at,
)
from sluice_ops.planning.placement.drift import usable_pins
from sluice_ops.planning.placement.exactly import place_exactly, place_of_worker
from sluice_ops.planning.placement.shares import target

IDLE = 0.3
"""A host with less load than this part of its cores is left alone."""
ABOVE_MEAN = 0.1
"""How far a host's load may be above the mean of all hosts."""
LEAST_GAIN = 0.01
"""By how much a move has to lower the load of a host that stays above its limit."""
MOST_MOVES = 6
"""The most moves for which the fewest are searched; beyond, single moves follow each other."""
MOST_LOOKS = 2_000
"""The most combinations of moves that one search looks at."""
MOST_HOSTS = 12
"""The hosts with the least load to which a worker may move in a search."""

_Option = tuple[TierName, HostName, HostName]
"""A worker of a tier moves from one host to another."""
_State = Mapping[tuple[TierName, HostName], int]
"""The number of a tier's workers on a host."""


@dataclass(frozen=True)
class Loads:
    """The load of each host, in parts of its cores, and the limit that each should keep."""

    cluster: Cluster

    @cached_property
    def _tiers(self) -> dict[TierName, TierNow]:
        return {
            name: tier
            for name, tier in sorted(self.cluster.tiers.items())
            if tier.placement is not None and name in self.cluster.busy and not tier.awaits_upgrade
        }

    def part(self, tier: TierName, host: HostName) -> float:
        """Return the load of one worker of a tier on a host."""
        cores = self.cluster.busy[tier] * self._tiers[tier].spec.quantum.cpu
        return cores / self.cluster.hosts[host].capacity.cpu

    @cached_property
    def start(self) -> _State:
        """Where the workers with a known load are."""
        return Counter(
            (name, host)
            for name, tier in self._tiers.items()
            for host in (tier.placement.slots if tier.placement is not None else ())
            if host in self.cluster.hosts
        )

    @cached_property
    def others(self) -> dict[HostName, float]:
        """The load of other programs on busy hosts."""
        own = self._own(self.start)
        return {name: max(0.0, 1.0 - own.get(name, 0.0)) for name in self.cluster.busy_hosts}

    def _own(self, state: _State) -> dict[HostName, float]:
        own: dict[HostName, float] = {}
        for (tier, host), count in state.items():
            own[host] = own.get(host, 0.0) + count * self.part(tier, host)
        return own

    def of(self, state: _State) -> dict[HostName, float]:
        """Return the load of each host with its workers there."""
        own = self._own(state)
        return {name: own.get(name, 0.0) + self.others.get(name, 0.0) for name in self.cluster.hosts}

    @cached_property
    def limit(self) -> float:
        """The load that no host should exceed: a little above the mean of all hosts."""
        loads = self.of(self.start)
        hosts = [host for host in self.cluster.hosts.values() if host.usable and host.zone != BURST_ZONE] or [
            *self.cluster.hosts.values()
        ]
        cores = sum(host.capacity.cpu for host in hosts)
        mean = sum(loads[host.name] * host.capacity.cpu for host in hosts) / cores if cores else 0.0
        return max(IDLE, mean + ABOVE_MEAN)

    def excess(self, loads: Mapping[HostName, float], host: HostName) -> float:
        """Return how far a host is above its limit; a host with other programs should be empty."""
        return max(0.0, loads[host] - max(self.limit, self.others.get(host, 0.0)) - TOLERANCE)


def rebalancing(cluster: Cluster) -> tuple[WorkerMove, ...]:
    """Return the fewest moves of single workers after which no host is above its limit.

    If no moves reach that, the moves lower the highest loads one after the other. No move makes a
    host as loaded as the one that the worker leaves. There is nothing to do after these moves.
    """
    search = _Search(cluster)
    state = search.loads.start
    while True:
        moves = search.fewest(state) or search.one(state)
        if not moves:
            return search.moves(state)
        state = _after(state, moves)


def loads_before_and_after(
    cluster: Cluster, placements: Mapping[TierName, Placement]
) -> tuple[dict[HostName, float], dict[HostName, float]]:
    """Return the load of each host now, and after some tiers moved to these placements."""
    loads = Loads(cluster)
    tiers = {
        name: replace(tier, placement=placements.get(name, tier.placement))
        for name, tier in cluster.tiers.items()
    }
    after = Loads(replace(cluster, tiers=tiers)).start
    return loads.of(loads.start), loads.of(after)


class _Search:
    """Searches for moves from the present placement."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.loads = Loads(cluster)
        self._looks = 0
        self._hosts: dict[tuple[TierName, HostName], frozenset[HostName]] = {}
        self._possible: dict[frozenset[tuple[tuple[TierName, HostName], int]], bool] = {}

    def fewest(self, state: _State) -> tuple[_Option, ...]:
        """Return the fewest moves after which no host is above its limit; none if not found."""
        self._looks = 0
        needed = self._needed(state)
        if not needed:
            return ()
        for count in range(needed, MOST_MOVES + 1):
            moves = self._search(state, count, (), None)
            if moves or self._looks >= MOST_LOOKS:
                return moves
        return ()

    def _search(
        self, state: _State, left: int, so_far: tuple[_Option, ...], last: _Option | None
    ) -> tuple[_Option, ...]:
        """Return moves that extend `so_far` by `left` moves, in the order of the options."""
        needed = self._needed(state)
        if not needed and self._is_possible(state):
            return so_far
        self._looks += 1
        if not left or needed > left or self._looks >= MOST_LOOKS:
            return ()
        for option in self._options(state, urgent=needed == left):
            if last is None or option >= last:
                moves = self._search(_after(state, (option,)), left - 1, (*so_far, option), option)
                if moves:
                    return moves
        return ()

    def one(self, state: _State) -> tuple[_Option, ...]:
        """Return the move that lowers the load of the fullest host most; none if none helps.

        If no move lowers that host, the move lowers the next one above its limit.
        """
        loads = self.loads.of(state)
        options: list[tuple[float, float, _Option]] = []
        for option in self._options(state, urgent=True):
            tier, source, to = option
            highest = max(
                loads[source] - self.loads.part(tier, source), loads[to] + self.loads.part(tier, to)
            )
            if highest <= loads[source] - LEAST_GAIN:
                options.append((-self.loads.excess(loads, source), highest, option))
        return next(
            ((option,) for *_, option in sorted(options) if self._is_possible(_after(state, (option,)))), ()
        )

    def _needed(self, state: _State) -> int:
        """Return how many workers have to move at least: the largest ones leave full hosts."""
        loads, needed = self.loads.of(state), 0
        excesses = {name: excess for name in loads if (excess := self.loads.excess(loads, name))}
        workers: dict[HostName, list[float]] = {name: [] for name in excesses}
        for (tier, host), count in state.items():
            if host in workers:
                workers[host] += [self.loads.part(tier, host)] * count
        for name, excess in excesses.items():
            left, parts = excess, sorted(workers[name])
            while left > 0 and parts:
                left -= parts.pop()
                needed += 1
            if left > TOLERANCE:
                return MOST_MOVES + 1
        return needed

    def _options(self, state: _State, *, urgent: bool) -> list[_Option]:
        """Return the moves that may be made; with `urgent`, only off hosts above their limit."""
        loads = self.loads.of(state)
        options: list[_Option] = []
        emptiest = sorted(loads, key=lambda name: (loads[name], name))
        for (tier, source), count in sorted(state.items()):
            if count <= self._pins[tier].get(source, 0) or not self.loads.part(tier, source):
                continue
            if urgent and not self.loads.excess(loads, source):
                continue
            allowed = self._allowed(tier, source)
            options += islice(((tier, source, to) for to in emptiest if to in allowed), MOST_HOSTS)
        return sorted(options)

    @cached_property
    def _pins(self) -> dict[TierName, dict[HostName, int]]:
        """By tier: the workers that stay on a host, because they are pinned there."""
        rules, hosts = self._cluster.rules, self._cluster.hosts
        return {name: usable_pins(name, target(name, rules), hosts) for name in self._cluster.tiers}

    def _allowed(self, tier: TierName, source: HostName) -> frozenset[HostName]:
        """Return the other hosts where a worker of a tier that is on `source` may be."""
        if (tier, source) not in self._hosts:
            hosts, aim = self._cluster.hosts, target(tier, self._cluster.rules)
            is_there = at(place_of_worker(source, aim, hosts))
            quantum = self._cluster.tiers[tier].spec.quantum
            self._hosts[tier, source] = frozenset(
                name
                for name, host in hosts.items()
                if name != source
                and is_there(host)
                and host.takes(quantum)
                and host.admits(tier, aim.separate)
            )
        return self._hosts[tier, source]

    def _is_possible(self, state: _State) -> bool:
        """Return whether the moves find room beside all units, and keep the rules of the site.

        A tier keeps its spread: no host gets more workers of it than the fullest one has now, so
        that a repair takes nothing back.
        """
        key = frozenset((place, count) for place, count in state.items() if count)
        if key not in self._possible:
            self._possible[key] = self._find_room(state)
        return self._possible[key]

    def _find_room(self, state: _State) -> bool:
        cluster, hosts = self._cluster, self._cluster.hosts
        moves = self.moves(state)
        for tier in cluster.end_first():
            name, now = tier.spec.name, tier.placement
            to = {move.worker: move.to for move in moves if move.tier == name}
            if not to or now is None:
                continue
            slots = tuple(to.get(number, host) for number, host in enumerate(now.slots))
            if tier.failed or _most_on_a_host(slots) > _most_on_a_host(now.slots):
                return False
            after = now.model_copy(update={"slots": slots})
            try:
                hosts = place_exactly(tier.spec, target(name, cluster.rules), now, after, hosts).hosts
            except RefusedError:
                return False
        return True

    def moves(self, state: _State) -> tuple[WorkerMove, ...]:
        """Return the moves of single workers from the present placement to this state.

        Of the workers on one host, those with the highest numbers move.
        """
        moves: list[WorkerMove] = []
        for name, tier in sorted(self._cluster.tiers.items()):
            before = Counter({host: count for (of, host), count in self.loads.start.items() if of == name})
            wanted = Counter({host: count for (of, host), count in state.items() if of == name})
            leaving, coming = before - wanted, sorted((wanted - before).elements())
            if tier.placement is None or not coming:
                continue
            numbers: list[int] = []
            for number, host in sorted(enumerate(tier.placement.slots), reverse=True):
                if leaving[host] > 0:
                    leaving[host] -= 1
                    numbers.append(number)
            moves += [
                WorkerMove(tier=name, worker=number, to=to)
                for number, to in zip(sorted(numbers), coming, strict=True)
            ]
        return tuple(moves)


def _most_on_a_host(slots: Iterable[HostName]) -> int:
    return max(Counter(slots).values(), default=0)


def _after(state: _State, options: Iterable[_Option]) -> _State:
    """Return the state after these moves."""
    after = Counter(state)
    for tier, source, to in options:
        after[tier, source] -= 1
        after[tier, to] += 1
    return after
