"""The logs of the embedded platform: services in `logs`, slots and drivers below `hosts`."""

from pathlib import Path

from sluice_ops.local.layout import Layout
from sluice_ops.queries.unit_logs import unit_logs


def find(layout: Layout) -> dict[str, Path]:
    """Return the log files, by the service's name or by `host/unit`."""
    services = {path.stem: path for path in sorted(layout.logs.glob("*.log"))}
    return services | unit_logs(layout.home)
