"""The cluster for planning: hosts with what their units hold, and tiers with their places."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from functools import cache

from sluice_ops.controller.pass_state import Draft
from sluice_ops.model.assignment import HostState, slot_id
from sluice_ops.model.ids import BATCH, HostName, TierName
from sluice_ops.model.resources import Capacity, Quantum
from sluice_ops.model.status import TierState
from sluice_ops.model.tier import Mode
from sluice_ops.planning.placement.cluster import Cluster, Host, Hosts, TierNow


def cluster_of_draft(draft: Draft) -> Cluster:
    """Return the cluster with the decisions of this pass so far."""
    if draft.counted_hosts is None:
        draft.counted_hosts = _counted_hosts(draft)
    tiers: dict[TierName, TierNow] = {}
    for name, tier in draft.view.tiers.items():
        owning, owner = draft.owner_spec(name), draft.owners[name].owner
        last = None if owner is None else draft.incarnations[name].get(owner)
        status = draft.statuses.get(name)
        workers, wanted = draft.workers(name), draft.wanted[name]
        tiers[name] = TierNow(
            spec=tier.spec,
            placement=None if owning is None else owning.placement,
            last=None if last is None else last.placement,
            wanted=wanted.running,
            release=draft.release_of(name) if owning is None else owning.release,
            partitions=wanted.partitions if owning is None else owning.partitions,
            paused=wanted.paused,
            failed=status is not None and status.state is TierState.FAILED,
            fault="" if status is None or status.error is None else status.error,
            workers=workers,
            paused_workers=tuple(worker for worker in wanted.paused_workers if worker in workers),
            takes_workers=owning is not None
            and (report := tier.reports.get(owning.incarnation)) is not None
            and (report.plans_anew if tier.spec.mode is Mode.REALTIME else report.takes_workers),
            may_be_light=tier.may_be_light,
        )
    batch, view = tuple(sorted(draft.batch.values())), draft.view
    return Cluster(
        draft.counted_hosts,
        tiers,
        batch,
        draft.rules,
        draft.pace,
        tuple(returning(draft)),
        view.releases,
        view.unread_releases,
        draft.braked,
        view.scaler.busy,
        frozenset(
            name
            for name, host in view.hosts.items()
            if host.live and host.observed is not None and host.observed.busy_since is not None
        ),
    )


def returning(draft: Draft) -> list[HostName]:
    """Name the host of each slot that was taken back from `batch` and still runs."""
    kept = {(host, slot_id(BATCH, 0, number)) for number, host in draft.batch.items()}
    return [host for host, unit in draft.observed_batch if (host, unit) not in kept]


def _counted_hosts(draft: Draft) -> Hosts:
    """Return every registered host with what it holds, in the order of the hosts' names."""
    cpu: dict[HostName, float] = defaultdict(float)
    memory: dict[HostName, int] = defaultdict(int)
    tiers: dict[HostName, list[TierName]] = defaultdict(list)

    def add(places: Iterable[HostName], quantum: Quantum, tier: TierName | None = None) -> None:
        cores, mebibytes = quantum.cpu, quantum.memory  # read once, not for each of 100,000 units
        for host in places:
            cpu[host] += cores
            memory[host] += mebibytes
            if tier is not None:
                tiers[host].append(tier)

    add((*draft.batch.values(), *returning(draft)), draft.rules.batch_quantum)
    for name, tier in draft.view.tiers.items():
        for spec in draft.unretired(name):
            add((spec.placement.driver,), tier.spec.driver, name)
            add(spec.placement.slots, tier.spec.quantum, name)
    if draft.view.unread:
        for host in draft.view.hosts:
            for unit in draft.view.units_of_unread_tiers(host):
                add((host,), unit.quantum, TierName(unit.tenant))
    hosts = (
        _host(draft, name, cpu[name], memory[name], tuple(tiers[name])) for name in sorted(draft.view.hosts)
    )
    return {host.name: host for host in hosts if host is not None}


@cache
def _capacity(cpu: float, memory: int) -> Capacity:
    """Return a cached capacity: the hosts of a site have few sizes."""
    return Capacity(cpu=cpu, memory=memory)


def _host(draft: Draft, name: HostName, cpu: float, memory: int, tiers: tuple[TierName, ...]) -> Host | None:
    """Return a registered host with its use; None if its facts are unreadable.

    A host with a silent agent counts as lost here, so nothing new is placed on it.
    """
    seen = draft.view.hosts[name]
    if seen.facts is None:
        return None
    state = draft.host_state(name) if seen.live else HostState.LOST
    capacity = _capacity(seen.facts.cpu, seen.facts.memory)
    starves = (
        frozenset(tier for tier, since in draft.starved.items() if name in since)
        if draft.starved
        else frozenset[TierName]()
    )
    host = Host(
        name,
        seen.facts.zone,
        seen.facts.labels,
        capacity,
        state,
        cpu,
        memory,
        seen.facts.rack or "",
        tiers,
        starves=starves,
    )
    return replace(host, only=draft.rules.only_on(host)) if draft.rules.dedicated else host
