"""Types for names, so that the type checker finds mixed-up names."""

import re
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


def named_by_people(name: str, kind: str, example: str) -> str:
    """Return a name of the site file; raise ValueError, with an example, if it has another form."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{0,49}", name):
        message = (
            f"{name!r} is not {kind}: "
            f"write up to 50 letters, digits, _ and -, and begin with a letter, such as {example}"
        )
        raise ValueError(message)
    return name
