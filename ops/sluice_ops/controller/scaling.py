"""The scaler's part of the leader: reads the tiers' loads, plans, and publishes the decisions.

The decisions are a node of the channel, on which the next pass decides like on every other node
(`policies.settling`). So a lost decision is made again, and a new leader continues.
"""

import time
from collections.abc import Callable, Mapping

import structlog

from sluice_ops.channel import Channel, Guard, Write
from sluice_ops.channel.client import ANY_VERSION
from sluice_ops.controller.pass_state import Draft, PassInputs
from sluice_ops.controller.policies import health
from sluice_ops.controller.policies.capacity import cluster_of_draft
from sluice_ops.controller.turn_reads import requested, tier_loads
from sluice_ops.model import paths
from sluice_ops.model.ids import TierName, UnitId
from sluice_ops.model.instance_receipt import InstanceReceipt
from sluice_ops.model.load import FRESH_SECONDS, TierLoad
from sluice_ops.model.scaler import Memory, Mode, ScalerModes, ScalerRecord, ScalerSettings
from sluice_ops.planning.changes.break_even import boot_seconds
from sluice_ops.planning.scaler.bursts import leave, wish
from sluice_ops.planning.scaler.observe import busy_parts, observe
from sluice_ops.planning.scaler.planner import plan, with_causes
from sluice_ops.snapshot.view import View

log = structlog.get_logger()

PLAN_SECONDS = 15.0
"""Time between two plans."""


class Scaling:
    """Plans the sizes of the tiers every `PLAN_SECONDS`."""

    def __init__(self, channel: Channel, clock: Callable[[], float] = time.monotonic) -> None:
        """Plan over this channel; `clock` is monotonic."""
        self._channel = channel
        self._clock = clock
        self._due = 0.0
        self._memory: Memory | None = None
        self._seen: dict[TierName, tuple[float, float]] = {}
        """Tier → the time of its last load, by its driver's clock and by this one."""
        self._timed: dict[str, InstanceReceipt] = {}
        """Node → its receipt, if that has the time of joining, which never changes."""

    def forget(self) -> None:
        """Read the memory again: this controller has become leader."""
        self._memory, self._due = None, 0.0

    def turn(self, view: View, inputs: PassInputs, epoch: Guard) -> None:
        """Plan if it is time, and write decisions and memory under the leader's epoch."""
        if self._clock() < self._due or not view.tiers:
            return
        self._due = self._clock() + PLAN_SECONDS
        draft = Draft(view, inputs)
        settings = with_modes(
            inputs.rules.scaler, requested(self._channel, paths.SCALER_MODES, ScalerModes(), epoch)
        )
        memory = self._memory or self._read_memory()
        cluster = cluster_of_draft(draft)
        observation = observe(
            cluster,
            self._loads(view),
            memory,
            starved=draft.starved.keys(),
            busy=cluster.busy_hosts,
            modest={name for name in view.tiers if _is_modest(draft, name)},
            changing={name for name in view.tiers if not health.undisturbed(draft, name)},
            now=inputs.now,
            boot=self._boot_seconds(),
        )
        planned, self._memory = plan(observation, settings, memory)
        decisions = with_causes(planned, view.scaler.decisions)
        record = ScalerRecord(
            decisions=decisions,
            wish=wish(decisions, observation),
            leave=leave(decisions, observation),
            busy=busy_parts(observation, self._memory),
            at=inputs.now,
        )
        self._channel.multi(
            [
                epoch,
                Write(paths.SCALER, record, self._version(paths.SCALER)),
                Write(paths.SCALER_MEMORY, self._memory, self._version(paths.SCALER_MEMORY)),
            ]
        )

    def _version(self, path: str) -> int | None:
        return ANY_VERSION if self._channel.exists(path) else None

    def _read_memory(self) -> Memory:
        read = self._channel.read(paths.SCALER_MEMORY, Memory)
        if read is None and self._channel.exists(paths.SCALER_MEMORY):
            log.warning("the scaler's memory cannot be read; it begins anew", path=paths.SCALER_MEMORY)
        return Memory() if read is None else read.value

    def _boot_seconds(self) -> float | None:
        """Return how long the last instances of EC2 took to start."""
        nodes = [paths.instance(name) for name in self._channel.children(paths.INSTANCES)]
        new = [node for node in nodes if node not in self._timed]
        reads = zip(new, self._channel.read_many(new, InstanceReceipt), strict=True)
        timed = self._timed | {node: read.value for node, read in reads if read is not None}
        self._timed = {
            node: timed[node] for node in nodes if node in timed and timed[node].joined_at is not None
        }
        return boot_seconds(self._timed.values())

    def _loads(self, view: View) -> Mapping[TierName, TierLoad]:
        """Return the fresh loads of the tiers."""
        now, fresh = self._clock(), dict[TierName, TierLoad]()
        for name, load in tier_loads(self._channel, view).items():
            if self._seen.get(name, (None, 0.0))[0] != load.at:
                self._seen[name] = load.at, now
            if now - self._seen[name][1] <= FRESH_SECONDS:
                fresh[name] = load
        return fresh


def _is_modest(draft: Draft, tier: TierName) -> bool:
    """Tell whether all workers of a tier need little processor time."""
    owning, hosts = draft.owner_spec(tier), draft.view.hosts
    if owning is None:
        return False
    modest = frozenset[UnitId]().union(
        *(
            host.observed.modest
            for name in set(owning.placement.slots)
            if (host := hosts.get(name)) is not None and host.live and host.observed is not None
        )
    )
    return modest.issuperset(draft.workers(tier))


def with_modes(settings: ScalerSettings, modes: ScalerModes) -> ScalerSettings:
    """Return the site file's settings with the modes that people have set."""
    tiers = {
        name: settings.of(name).model_copy(update={"mode": Mode(mode)}) for name, mode in modes.modes.items()
    }
    return settings.model_copy(update={"tiers": {**settings.tiers, **tiers}})
