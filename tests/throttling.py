"""Plays the controller for one entry in a lab: throttles it for the tiers that report a lag."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from sluice_ops.controller.policies.backpressure import lagging_after
from sluice_ops.model import paths
from sluice_ops.model.admission import admitted_rate
from sluice_ops.model.backpressure import Pressure
from sluice_ops.model.ids import TierName
from sluice_ops.model.incarnation import IncarnationReport, OwnerRecord
from sluice_ops.model.tier import TierSpec
from tests.lab import Lab


@dataclass
class Throttle:
    """Decides for the owner of each tier, as the controller's policy does."""

    lab: Lab
    tiers: Mapping[TierName, TierSpec]
    entry: str
    pressures: list[Pressure] = field(default_factory=list)
    """All reports, in order."""
    culprits: set[TierName] = field(default_factory=set)
    """The tiers for which the entry was throttled."""
    begun: int = 0
    """How often the entry was throttled."""
    written: int = 0
    """How often its owner record was written."""
    now: OwnerRecord = field(default_factory=OwnerRecord)
    """The owner record of the entry."""
    _leader_node: str = ""

    def register_as_leader(self) -> None:
        """Create a leader's node, which drivers look for."""
        self._leader_node = self.lab.channel.kazoo.create(
            f"{paths.LEADER}/test", ephemeral=True, makepath=True, sequence=True
        )

    def step(self) -> None:
        reports = {tier: self._report(tier) for tier in self.tiers}
        pressing = {
            tier: report.pressure
            for tier, report in reports.items()
            if report is not None and report.pressure is not None
        }
        self.pressures += pressing.values()
        culprits = lagging_after(self.tiers, pressing).get(TierName(self.entry), ())
        self.culprits.update(culprits)
        owner = self.lab.channel.read(paths.owner(self.entry), OwnerRecord)
        assert owner is not None
        self.now = owner.value
        culprit, rate = (
            (culprits[0], self._rate([pressing[name] for name in culprits])) if culprits else (None, 0.0)
        )
        if (self.now.held_for, self.now.admitted) != (culprit, rate):
            self.begun += self.now.held_for is None
            self.written += 1
            self.lab.set_owner(self.entry, 1, held_for=culprit, admitted=rate)

    def _rate(self, pressures: list[Pressure]) -> float:
        report = self._report(self.entry)
        return admitted_rate(self.now.admitted, None if report is None else report.rate_taken, pressures)

    def _report(self, tier: str) -> IncarnationReport | None:
        owner = self.lab.channel.read(paths.owner(tier), OwnerRecord)
        return (
            None if owner is None or owner.value.owner is None else self.lab.report(tier, owner.value.owner)
        )
