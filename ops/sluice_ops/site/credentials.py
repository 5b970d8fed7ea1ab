"""The credentials of the channel's roles: random passwords, each in its own file.

`sluice up` and `sluice access --make` create them.
"""

import secrets
from pathlib import Path

from sluice_ops.model.access import KEPT, id_of
from sluice_ops.site.endpoints import Access
from sluice_ops.site.files import write_private

BYTES = 24
"""Random bytes in a password: too many to compute the password from its digest in access lists."""


def make(folder: Path) -> Access:
    """Create the credentials that the folder lacks; return the roles of all its credentials."""
    roles = {}
    for role in KEPT:
        file = folder / role
        if not file.exists():
            write_private(file, secrets.token_urlsafe(BYTES) + "\n")
        roles[role] = id_of(role, file.read_text().strip())
    folder.chmod(0o700)
    return Access(credentials=folder, roles=roles)
