"""The addresses where processes serve their metrics, for Prometheus."""

from collections.abc import Iterable
from typing import Any

from sluice_ops.model.access import Role
from sluice_ops.model.ids import HostName, Incarnation, TierName
from sluice_ops.model.resources import Frozen


class Exporter(Frozen):
    """`exporters/<role>-<n>`: an ephemeral node, which exists as long as its process.

    Fields that do not apply to a role are None.
    """

    role: Role
    address: str
    """`host:port`."""
    host: HostName | None = None
    tier: TierName | None = None
    incarnation: Incarnation | None = None
    controller: str | None = None
    """A controller's name."""

    @property
    def labels(self) -> dict[str, str]:
        """The labels that Prometheus adds to each metric of the process."""
        return {
            name: str(value)
            for name, value in self.model_dump(exclude={"address"}, exclude_none=True).items()
        }


def targets(exporters: Iterable[Exporter]) -> list[dict[str, Any]]:
    """Return the exporters in the format of Prometheus' service discovery (HTTP or file)."""
    return [{"targets": [exporter.address], "labels": exporter.labels} for exporter in exporters]
