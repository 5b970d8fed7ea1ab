"""The made-up cluster: so many hosts and slots, spread over tiers as large as a Spark application gets. Pure; called by `run`."""

import math
from dataclasses import dataclass

from sluice_ops.controller.pass_state import Moment
from sluice_ops.model.assignment import Assignment, HostFacts, HostRecord
from sluice_ops.model.ids import HostName, TierName
from sluice_ops.model.incarnation import OwnerRecord, TierWanted
from sluice_ops.model.resources import Quantum
from sluice_ops.model.share import Share
from sluice_ops.model.tier import Delivery, Kind, Mode, TierSpec
from sluice_ops.planning.placement.cluster import Rules
from sluice_ops.snapshot.view import HostView, TierView, View

LARGEST_TIER = 1000
"""Slots of one tier: one Spark application with as many executors."""
FEWEST_TIERS = 4
SPARE = 1.25
"""Room on the hosts, as a multiple of the slots: what is lost has to find a place."""
SLOT = Quantum(cpu=1, memory=1024, threads=4)
DRIVER = Quantum(cpu=0.5, memory=512, threads=1)
MOST_HOSTS = 20_000
MOST_SLOTS_ON_A_HOST = 64


class SizeError(Exception):
    """No cluster can be made up from these numbers; the message says what can."""


@dataclass(frozen=True)
class Size:
    """How large it is."""

    hosts: int
    slots: int

    @property
    def tiers(self) -> int:
        """How many tiers share the slots."""
        return max(FEWEST_TIERS, math.ceil(self.slots / LARGEST_TIER))

    @property
    def losses(self) -> int:
        """How many hosts are lost, one after the other: enough for a 99th percentile where there are enough, and never what is spare."""
        return min(100, max(2, self.hosts // 20))


def check(size: Size) -> None:
    """Refuse what cannot be simulated."""
    if not FEWEST_TIERS <= size.hosts <= MOST_HOSTS:
        message = f"--hosts {size.hosts}: from {FEWEST_TIERS} to {MOST_HOSTS} can be simulated"
        raise SizeError(message)
    if not FEWEST_TIERS <= size.slots <= size.hosts * MOST_SLOTS_ON_A_HOST:
        most = size.hosts * MOST_SLOTS_ON_A_HOST
        message = f"--slots {size.slots}: {size.hosts} hosts are simulated with {FEWEST_TIERS} to {most} slots ({MOST_SLOTS_ON_A_HOST} on each)"
        raise SizeError(message)


def host_name(number: int) -> HostName:
    """Name a host."""
    return HostName(f"h{number:05d}")


def facts(size: Size, number: int) -> HostFacts:
    """Say what the agent of a host registers."""
    room = math.ceil(size.slots / size.hosts * SPARE) + 1
    return HostFacts(
        name=host_name(number),
        address=f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}",
        zone="onprem",
        cpu=room,
        memory=room * SLOT.memory,
    )


def tiers(size: Size) -> dict[TierName, tuple[TierSpec, int]]:
    """Declare the tiers, each with its slots."""
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
    """Entitle each tier to its slots."""
    return Rules(
        shares={
            name: Share(minimum=1, target=slots, maximum=slots) for name, (_, slots) in tiers(size).items()
        }
    )


def wanted() -> TierWanted:
    """Want a tier."""
    return TierWanted(running=True, by="sluice simulate")


def unplanned(size: Size) -> tuple[View, Moment]:
    """Return what a controller sees when every host is there, every tier is wanted, and nothing runs yet."""
    hosts = {
        made.name: HostView(
            made.name, made, live=True, record=HostRecord(), assignment=Assignment(), observed=None
        )
        for made in (facts(size, number) for number in range(size.hosts))
    }
    made = {name: TierView(spec, OwnerRecord(), wanted(), {}, {}) for name, (spec, _) in tiers(size).items()}
    return View(tiers=made, hosts=hosts), Moment(now=0.0, lost=frozenset(), rules=rules(size))
