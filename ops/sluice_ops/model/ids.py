"""Types for names, so that the type checker finds mixed-up names."""

from typing import NewType

HostName = NewType("HostName", str)
TierName = NewType("TierName", str)
Tenant = NewType("Tenant", str)
"""A tier's name, or `batch`."""
Incarnation = NewType("Incarnation", int)
UnitId = NewType("UnitId", str)
OperationId = NewType("OperationId", str)
ChangeId = NewType("ChangeId", str)

BATCH = Tenant("batch")
