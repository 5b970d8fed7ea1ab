"""The internal states that a tier's hooks leave at a stop: bytes in files.

Receipts have each file's name, size and digest.

They are not in ZooKeeper, which takes a megabyte at most. `process.life` writes them at a hold, and
reads them at the next start.
"""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from sluice.api.hooks import Hooks
from sluice_ops.model.incarnation import Internal
from sluice_ops.site.files import atomic_file

log = structlog.get_logger()

KEPT = 20
"""The newest files of a tier that are kept; receipts of earlier stops are not read any more."""


class InternalStateError(Exception):
    """The file is missing, or differs from its receipt."""


@dataclass
class InternalStates:
    """The internal states of one tier, in a folder that all hosts share."""

    folder: Path
    hooks: Hooks
    _last: str | None = field(default=None)
    """The file whose content the hooks were given last."""

    @property
    def wanted(self) -> bool:
        """Whether the tier's hooks take an internal state."""
        return type(self.hooks).resume_execution is not Hooks.resume_execution

    def leave(self, incarnation: int, content: bytes) -> Internal:
        """Write an incarnation's internal state; return its entry for the receipt."""
        number = 1 + sum(1 for _ in self.folder.glob(f"{incarnation}.*"))
        while (path := self.folder / f"{incarnation}.{number}").exists():
            number += 1
        with atomic_file(path) as unfinished:
            unfinished.write_bytes(content)
        for old in sorted(self.folder.glob("[0-9]*"), key=lambda file: file.stat().st_mtime)[:-KEPT]:
            old.unlink(missing_ok=True)
        return Internal(name=path.name, size=len(content), sha256=hashlib.sha256(content).hexdigest())

    def take(self, left: Internal | None) -> None:
        """Give an internal state to the tier's hooks, once."""
        if not self.wanted or left is None or left.name == self._last:
            return
        self.hooks.resume_execution(self.read(left))
        self._last = left.name
        log.info("the hooks took over an internal state", name=left.name, size=left.size)

    def read(self, left: Internal) -> bytes:
        """Return the bytes of an internal state; InternalStateError if they differ from the
        receipt.
        """
        path = self.folder / left.name
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            content = b""
        if (len(content), hashlib.sha256(content).hexdigest()) != (left.size, left.sha256):
            message = (
                f"{path} is missing or damaged: the receipt says {left.size} bytes with sha256 "
                f"{left.sha256}, the file has {len(content)}; "
                "restore it, or start the tier without it: delete the receipts of its incarnations"
            )
            raise InternalStateError(message)
        return content
