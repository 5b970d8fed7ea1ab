"""The credentials of the channel's roles: made at random, each in a file of its own. For `sluice up` and `sluice access --make`."""

import secrets
from pathlib import Path

from sluice_ops.model.access import KEPT, id_of
from sluice_ops.site.endpoints import Access
from sluice_ops.site.files import write_private

BYTES = 24
"""Of chance in a password: its digest, which access lists show, cannot be turned back."""


def make(folder: Path) -> Access:
    """Return the roles of a folder's credentials; those that are not there are made."""
    roles = {}
    for role in KEPT:
        kept = folder / role
        if not kept.exists():
            write_private(kept, secrets.token_urlsafe(BYTES) + "\n")
        roles[role] = id_of(role, kept.read_text().strip())
    folder.chmod(0o700)
    return Access(credentials=folder, roles=roles)
