"""The internal states of a tier's incarnations, as they left them: bytes in files, named, measured and sealed in receipts.

They are not in ZooKeeper, which takes a megabyte at most. Called by the life of an incarnation, where it holds and where it goes on.
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
"""Files of a tier: receipts of incarnations that far back are not read any more."""


class InternalStateError(Exception):
    """The file is not what the receipt says."""


@dataclass
class InternalStates:
    """Those of one tier, in a folder that all hosts share."""

    folder: Path
    hooks: Hooks
    _last: str | None = field(default=None)
    """The one that was taken last."""

    @property
    def wanted(self) -> bool:
        """Whether the tier takes what was left."""
        return type(self.hooks).resume_execution is not Hooks.resume_execution

    def leave(self, incarnation: int, content: bytes) -> Internal:
        """Write what an incarnation leaves; return what its receipt says of it."""
        number = 1 + sum(1 for _ in self.folder.glob(f"{incarnation}.*"))
        while (path := self.folder / f"{incarnation}.{number}").exists():
            number += 1
        with atomic_file(path) as unfinished:
            unfinished.write_bytes(content)
        for old in sorted(self.folder.glob("[0-9]*"), key=lambda each: each.stat().st_mtime)[:-KEPT]:
            old.unlink(missing_ok=True)
        return Internal(name=path.name, size=len(content), sha256=hashlib.sha256(content).hexdigest())

    def take(self, left: Internal | None) -> None:
        """Hand what was left last to the tier, once."""
        if not self.wanted or left is None or left.name == self._last:
            return
        self.hooks.resume_execution(self.read(left))
        self._last = left.name
        log.info("took over an internal state", name=left.name, size=left.size)

    def read(self, left: Internal) -> bytes:
        """Return the bytes, if they are those that were left."""
        path = self.folder / left.name
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            content = b""
        if (len(content), hashlib.sha256(content).hexdigest()) != (left.size, left.sha256):
            message = (
                f"{path} is missing or damaged: the receipt says {left.size} bytes with sha256 {left.sha256}, there are {len(content)}; "
                f"bring it back, or start the tier without it: delete the receipts of its incarnations"
            )
            raise InternalStateError(message)
        return content
