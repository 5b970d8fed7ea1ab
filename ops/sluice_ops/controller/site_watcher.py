"""Follows the site file: a valid change applies at once.

After an invalid change, the last valid file applies. `__main__` starts the watcher in a thread of
its own.
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
"""Time between two looks. A file that differs between two looks is still being written."""


class SiteWatcher:
    """The current rules of one site file."""

    def __init__(self, path: Path) -> None:
        """Read the file; SiteError if it cannot be used."""
        self._path = path
        self._seen = self._read = _fingerprint(path)
        self.rules: Rules = rules_of(load(path), Layers())
        """The rules that apply now, without layers."""

    def follow(self, changed: Callable[[], None]) -> None:
        """Look for ever, and call `changed` when the rules have changed."""
        while True:
            time.sleep(LOOK_SECONDS)
            try:
                if self.read_if_changed():
                    changed()
            except Exception:
                log.exception(
                    "the site file could not be read; its last valid version applies", path=str(self._path)
                )

    def read_if_changed(self) -> bool:
        """Read the file if it has changed and was stable since the last look.

        Return whether the rules have changed.
        """
        before, self._seen = self._seen, _fingerprint(self._path)
        if self._seen == self._read or self._seen != before:
            return False
        self._read = self._seen
        try:
            rules = rules_of(load(self._path), Layers())
        except SiteError as error:
            log.error(  # noqa: TRY400
                "the site file cannot be used; its last valid version applies; next: sluice doctor",
                path=str(self._path),
                error=str(error),
            )
            rules = replace(self.rules, refused=" ".join(str(error).split()))
        if rules == self.rules:
            return False
        self.rules = rules
        if not rules.refused:
            log.info("the site file has changed; the new version applies now", path=str(self._path))
        return True


def _fingerprint(path: Path) -> tuple[int, int, int] | None:
    """Return a fingerprint that changes whenever the file does; None if the file is missing."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
