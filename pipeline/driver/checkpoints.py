"""The folders of a tier's checkpoints, one for each run: read, begun by links to the files of an earlier one, and removed."""

import json
import os
import re
import shutil
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from pipeline.driver.engine import ends, folder_of_run
from pipeline.driver.vouched import QUERY, Committed, Vouched, manifest, vouched
from pipeline.sinks.ledger import Last

log = structlog.get_logger()


@dataclass(frozen=True)
class Checkpoints:
    """A tier's own folder of them, which all hosts share."""

    folder: Path

    def begin(self, incarnation: int, endings: Sequence[Last]) -> tuple[Path, Vouched | None]:
        """Make the folder of a new run, with the newest state that the ledger vouches for, or empty where there is none."""
        run, _ = folder_of_run(self.folder, incarnation)
        for each in vouched([(last.number, last.ends) for last in endings], self._committed()):
            if self._link(each.committed, run):
                # a query of its own: Spark takes two of one id for one that is begun again
                (run / QUERY).write_text(json.dumps({"id": str(uuid.uuid4())}))
                log.info("begins from a checkpoint", run=run.name, of=each.committed.run, batch=each.committed.batch, ledger=each.number)
                return run, each
        return run, None

    def manifest(self, run: Path) -> tuple[int, tuple[str, ...]] | None:
        """Return the last batch that a run has committed, and the files of its state."""
        batches = sorted((int(commit.name) for commit in (run / "commits").glob("[0-9]*")), reverse=True)
        names = _names(run)
        whole = ((batch, found) for batch in batches if (found := manifest(names, batch)) is not None)
        return next(whole, None)

    def prune(self, keep: Path) -> None:
        """Remove the folders of runs before the one in `keep`, of this incarnation and of earlier ones."""
        for run in self._runs():
            if _order(run) < _order(keep):
                shutil.rmtree(run, ignore_errors=True)

    def _runs(self) -> list[Path]:
        return sorted((run for run in self.folder.iterdir() if re.fullmatch(r"\d+\.\d+", run.name)), key=_order)

    def _committed(self) -> list[Committed]:
        found = []
        for run in self._runs():
            for commit in (run / "commits").glob("[0-9]*"):
                try:
                    found.append(Committed(run.name, int(commit.name), ends(run, int(commit.name))))
                except FileNotFoundError:  # its run goes on, and removes what is old
                    continue
        return found

    def _link(self, committed: Committed, run: Path) -> bool:
        """Give a run the files of a committed batch, and tell whether all were there; they are never written again."""
        source = self.folder / committed.run
        for name in manifest(_names(source), committed.batch) or ():
            target = run / name
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(source / name, target)
            except FileNotFoundError:  # likewise
                continue
        if manifest(_names(run), committed.batch) is not None:
            return True
        for each in run.iterdir():
            shutil.rmtree(each) if each.is_dir() else each.unlink()
        return False


def _order(run: Path) -> tuple[int, ...]:
    return tuple(int(part) for part in run.name.split("."))


def _names(run: Path) -> list[str]:
    """Name the files of a checkpoint, without checksums and halves of files."""
    return [str(path.relative_to(run)) for path in run.rglob("*") if path.is_file() and not path.name.startswith(".")]
