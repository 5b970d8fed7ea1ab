"""The key `approval` of the site file: when a change waits for a second person."""

from sluice_ops.model.approval import ApprovalRule


def approval_of(value: object) -> object:
    """Read `off`, which is False in YAML: no change waits for a second person."""
    if value is False:
        return None
    if isinstance(value, dict | ApprovalRule):
        return value
    message = (
        f"{value!r} is no rule for approval: write off, or keys such as {{tiers: 3, gap_seconds: 10}}; "
        "without the key, a write-off and a pause of every tier wait"
    )
    raise ValueError(message)
