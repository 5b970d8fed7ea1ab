"""Reads the logs of a host for people on other machines."""

from pathlib import Path

from sluice_ops.model.logs import CHUNK_BYTES, LogPart, LogRequest
from sluice_ops.model.wording import listed
from sluice_ops.process.log_files import last_lines, log_files, text_after
from sluice_ops.process.logs import OwnLog


class LogReader:
    """Reads logs of the units in a host's folder, and the log of its agent."""

    def __init__(self, folder: Path, own: OwnLog) -> None:
        """Read files in `folder` only."""
        self._folder = folder
        self._own = own

    def __call__(self, request: LogRequest) -> LogPart:
        """Return the requested part; `missing` says why there is none."""
        if request.log is None:
            return self._own(request)
        try:
            files = log_files(self._folder)
            path = files.get(request.log)
            if path is None or not path.resolve().is_relative_to(self._folder.resolve()):
                names = listed(files) or "none"
                return LogPart(missing=f"it has not started, or 20 others ended since; logs there: {names}")
            if request.after is None:
                lines, position = last_lines(path, request.lines)
                return LogPart.fitting("".join(lines), position)
            return LogPart.fitting(*text_after(path, request.after, CHUNK_BYTES))
        except OSError as error:
            return LogPart(missing=f"the agent cannot read it: {error}")
