"""The simulated cluster: its hosts, and tiers as large as a Spark application gets. Pure."""

import math
from dataclasses import dataclass

from sluice_ops.controller.pass_state import PassInputs
from sluice_ops.model.assignment import Assignment, HostFacts, HostRecord
from sluice_ops.model.ids import HostName, TierName
from sluice_ops.model.incarnation import OwnerRecord, TierWanted
from sluice_ops.model.resources import Quantum
from sluice_ops.model.share import Share
from sluice_ops.model.tier import Delivery, Kind, Mode, TierSpec
from sluice_ops.planning.placement.cluster import Rules
from sluice_ops.snapshot.view import HostView, TierView, View

LARGEST_TIER = 1000
"""The most slots of one tier: a Spark application with as many executors."""
FEWEST_TIERS = 4
SPARE = 1.25
"""The hosts' capacity as a multiple of all slots: lost slots need another place."""
SLOT = Quantum(cpu=1, memory=1024, threads=4)
DRIVER = Quantum(cpu=0.5, memory=512, threads=1)
MOST_HOSTS = 20_000
MOST_SLOTS_ON_A_HOST = 64


class SizeError(Exception):
    """A cluster of this size cannot be simulated; the message gives the limits."""


@dataclass(frozen=True)
class Size:
    """The size of the cluster."""

    hosts: int
    slots: int

    @property
    def tiers(self) -> int:
        """The number of tiers."""
        return max(FEWEST_TIERS, math.ceil(self.slots / LARGEST_TIER))

    @property
    def losses(self) -> int:
        """The number of hosts to lose, one after the other.

        100 for a 99th percentile, if there are enough hosts; never more than the spare capacity.
        """
        return min(100, max(2, self.hosts // 20))


def check(size: Size) -> None:
    """Raise SizeError if the size is outside the limits."""
    if not FEWEST_TIERS <= size.hosts <= MOST_HOSTS:
        message = f"--hosts {size.hosts}: choose a number from {FEWEST_TIERS} to {MOST_HOSTS}"
        raise SizeError(message)
    if not FEWEST_TIERS <= size.slots <= size.hosts * MOST_SLOTS_ON_A_HOST:
        most = size.hosts * MOST_SLOTS_ON_A_HOST
        message = (
            f"--slots {size.slots}: with {size.hosts} hosts, choose a number from {FEWEST_TIERS} to {most} "
            f"({MOST_SLOTS_ON_A_HOST} on each host)"
        )
        raise SizeError(message)


def host_name(number: int) -> HostName:
    """Return the name of a host."""
    return HostName(f"h{number:05d}")


def facts(size: Size, number: int) -> HostFacts:
    """Return the facts that the agent of a host registers."""
    room = math.ceil(size.slots / size.hosts * SPARE) + 1
    return HostFacts(
        name=host_name(number),
        address=f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}",
        zone="onprem",
        cpu=room,
        memory=room * SLOT.memory,
    )


def tiers(size: Size) -> dict[TierName, tuple[TierSpec, int]]:
    """Return the tiers, each with its number of slots."""
    share, more = divmod(size.slots, size.tiers)
    declared = [
        TierSpec(
            name=TierName(f"t{number:02d}"),
            kind=Kind.PROCESSING,
            mode=Mode.REALTIME,
            delivery=Delivery.AT_LEAST_ONCE,
            inputs=(f"s{number:02d}",),
            outputs=(f"s{number + 1:02d}",),
            quantum=SLOT,
            driver=DRIVER,
            distance=size.tiers - 1 - number,
        )
        for number in range(size.tiers)
    ]
    return {spec.name: (spec, share + (number < more)) for number, spec in enumerate(declared)}


def rules(size: Size) -> Rules:
    """Return rules in which the share of each tier is its number of slots."""
    return Rules(
        shares={
            name: Share(minimum=1, target=slots, maximum=slots) for name, (_, slots) in tiers(size).items()
        }
    )


def wanted() -> TierWanted:
    """Return the request to run a tier."""
    return TierWanted(running=True, by="sluice simulate")


def unplanned(size: Size) -> tuple[View, PassInputs]:
    """Return a controller's view of all hosts up and all tiers wanted, before anything runs."""
    hosts = {
        host.name: HostView(
            host.name, host, live=True, record=HostRecord(), assignment=Assignment(), observed=None
        )
        for host in (facts(size, number) for number in range(size.hosts))
    }
    views = {name: TierView(spec, OwnerRecord(), wanted(), {}, {}) for name, (spec, _) in tiers(size).items()}
    return View(tiers=views, hosts=hosts), PassInputs(now=0.0, lost=frozenset(), rules=rules(size))
