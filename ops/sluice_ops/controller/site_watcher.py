"""The site file as a controller goes by it: a change of it holds at once; what cannot be used is said, and the last good one goes on.

Started by `__main__`, which has it followed in a thread of its own.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import structlog

from sluice_ops.model.share import Layers
from sluice_ops.planning.placement.cluster import Rules
from sluice_ops.site.site_file import SiteError, load
from sluice_ops.snapshot.rules import rules_of

log = structlog.get_logger()

LOOK_SECONDS = 1.0
"""Between two looks. A file that differs between them is still being written."""


class Rulebook:
    """The rules of one site file."""

    def __init__(self, path: Path) -> None:
        """Read it; SiteError where it cannot be used."""
        self._path = path
        self._seen = self._read = _stamp(path)
        self.rules: Rules = rules_of(load(path), Layers())
        """What holds now; without layers."""

    def follow(self, changed: Callable[[], None]) -> None:
        """Look for ever, and tell when other rules hold."""
        while True:
            time.sleep(LOOK_SECONDS)
            try:
                if self.look():
                    changed()
            except Exception:
                log.exception(
                    "the site file could not be looked at: the one before it holds", path=str(self._path)
                )

    def look(self) -> bool:
        """Read the file anew when it has changed and is the same as at the last look; tell whether there is news."""
        before, self._seen = self._seen, _stamp(self._path)
        if self._seen == self._read or self._seen != before:
            return False
        self._read = self._seen
        try:
            rules = rules_of(load(self._path), Layers())
        except SiteError as error:
            log.error(  # noqa: TRY400
                "the site file cannot be used: the one before it holds",
                path=str(self._path),
                error=str(error),
            )
            rules = replace(self.rules, refused=" ".join(str(error).split()))
        if rules == self.rules:
            return False
        self.rules = rules
        if not rules.refused:
            log.info("the site file has changed: it holds from now on", path=str(self._path))
        return True


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """Return what changes whenever the file does."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
