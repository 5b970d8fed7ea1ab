"""The key `approval` of the site file: when a change waits for a second person."""

from sluice_ops.model.approval import ApprovalRule
from sluice_ops.site.repair_config import WindowConfig


class ApprovalConfig(ApprovalRule):
    """When a change waits until another person than its requester approves it."""

    hours: WindowConfig | None = None
    """When every change that hands over, resizes or pauses a tier waits.

    Such as `{schedule: "0 22 * * *", hours: 8, timezone: Europe/Bucharest}`. Default: at no hour.
    """


def approval_of(value: object) -> object:
    """Read `off`, which is False in YAML: no change waits for a second person."""
    if value is False:
        return None
    if isinstance(value, dict | ApprovalRule):
        return value
    message = (
        f"{value!r} is no rule for approval: write off, or keys such as {{tiers: 3, gap_seconds: 10}}; "
        "without the key, a write-off, a pause of every tier and a burst over the budget wait"
    )
    raise ValueError(message)
