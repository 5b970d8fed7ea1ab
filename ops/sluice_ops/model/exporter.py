"""Where a process serves its figures, so that Prometheus finds it."""

from collections.abc import Iterable
from typing import Any

from sluice_ops.model.access import Role
from sluice_ops.model.ids import HostName, Incarnation, TierName
from sluice_ops.model.resources import Frozen


class Exporter(Frozen):
    """`exporters/<role>-<n>`: ephemeral, so that it is there for as long as its process. Fields that a role has no use for stay None."""

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
        """Return what Prometheus adds to each of its figures."""
        return {
            name: str(value)
            for name, value in self.model_dump(exclude={"address"}, exclude_none=True).items()
        }


def targets(exporters: Iterable[Exporter]) -> list[dict[str, Any]]:
    """Write them as Prometheus' service discovery reads them, over HTTP or from a file."""
    return [{"targets": [each.address], "labels": each.labels} for each in exporters]
