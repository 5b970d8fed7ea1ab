"""The checkpoints of a tier with state, one folder for each run: read, begun with the files of an earlier one, and removed."""

import json
import re
import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

import structlog

from pipeline.driver.depot import Depot
from pipeline.driver.engine import offsets_of, partitions_of
from pipeline.driver.vouched import QUERY, Committed, Vouched, manifest, vouched
from pipeline.sinks.ledger import Last

log = structlog.get_logger()
RUN = re.compile(r"\d+\.\d+")
WHOLE_PATHS = re.compile(r"state/\d+/_metadata/v2/\d+")
"""Says of an operator where its files are, with their whole paths: of another run, they name another run's files."""
LENDERS = 16
"""So many files are lent at once: in a bucket each takes a request."""
COMMIT = re.compile(r"commits/(\d+)")


@dataclass(frozen=True)
class Checkpoints:
    """A tier's own, which all hosts share."""

    depot: Depot

    def begin(self, incarnation: int, endings: Sequence[Last]) -> tuple[str, Vouched | None]:
        """Make the folder of a new run, with the newest state that the ledger vouches for, or empty where there is none."""
        run = self._make(incarnation)
        for each in vouched([(last.number, last.ends) for last in endings], self._committed()):
            if self._give(each.committed, run):
                log.info("begins from a checkpoint", run=run, of=each.committed.run, batch=each.committed.batch, ledger=each.number)
                return run, each
        return run, None

    def go_on(self, incarnation: int, run: str) -> tuple[str, Committed]:
        """Make the folder of a new run, with what a run that has ended committed last."""
        last = max(self._commits(run), key=lambda each: each.batch)
        after = self._make(incarnation)
        if not self._give(last, after):
            message = f"{self.depot.url(run)} lacks files of its last batch, {last.batch}"
            raise FileNotFoundError(message)
        return after, last

    def manifest(self, run: str) -> tuple[int, tuple[str, ...]] | None:
        """Return the last batch that a run has committed, and the files of its state."""
        names = self.depot.names(run)
        committed = sorted(self._commits(run, names), key=lambda each: each.batch, reverse=True)
        whole = ((each.batch, found) for each in committed if (found := manifest(names, each.batch, each.partitions)) is not None)
        return next(whole, None)

    def ends(self, run: str, batch: int) -> dict[str, int]:
        """Return where a batch ends, as its run's checkpoint has it."""
        return offsets_of(self.depot.read(f"{run}/offsets/{batch}"))

    def committed(self, run: str, batch: int) -> bool:
        """Tell whether a run's query has committed a batch."""
        return self.depot.exists(f"{run}/commits/{batch}")

    def prune(self, keep: str) -> None:
        """Remove the folders of runs before that one, of this incarnation and of earlier ones."""
        for run in self._runs():
            if _order(run) < _order(keep):
                self.depot.remove(run)

    def _make(self, incarnation: int) -> str:
        """Make a folder by the first number that no run of this incarnation has had, in any process of it."""
        number = 0
        while not self.depot.make(run := f"{incarnation}.{number}"):
            number += 1
        return run

    def _runs(self) -> list[str]:
        return sorted((name for name in self.depot.folders() if RUN.fullmatch(name)), key=_order)

    def _committed(self) -> list[Committed]:
        return [each for run in self._runs() for each in self._commits(run)]

    def _commits(self, run: str, names: Sequence[str] | None = None) -> Iterator[Committed]:
        for name in self.depot.names(run) if names is None else names:
            if not (found := COMMIT.fullmatch(name)):
                continue
            try:
                json.loads(self.depot.read(f"{run}/{name}").splitlines()[1])  # or Spark could not read it either
                offsets = self.depot.read(f"{run}/offsets/{found[1]}")
                yield Committed(run, int(found[1]), offsets_of(offsets), partitions_of(offsets))
            except FileNotFoundError:  # the run goes on, and removes what is old
                continue
            except (ValueError, LookupError) as error:
                log.warning("a damaged checkpoint is passed over", run=run, batch=found[1], error=repr(error))

    def _give(self, committed: Committed, run: str) -> bool:
        """Give a run the files of a committed batch, and tell whether all were there; they are never written again."""

        def lend(name: str) -> None:
            with suppress(FileNotFoundError):  # likewise
                if WHOLE_PATHS.fullmatch(name):
                    self.depot.write(f"{run}/{name}", self._of(run, self.depot.read(f"{committed.run}/{name}")))
                else:
                    self.depot.lend(f"{committed.run}/{name}", f"{run}/{name}")

        files = manifest(self.depot.names(committed.run), committed.batch, committed.partitions) or ()
        commits = [name for name in files if COMMIT.fullmatch(name)]
        with ThreadPoolExecutor(LENDERS) as pool:
            for group in ([name for name in files if name not in commits], commits):
                deque(pool.map(lend, group), maxlen=0)
        if manifest(self.depot.names(run), committed.batch, committed.partitions) is None:
            self.depot.remove(run)
            self.depot.make(run)
            return False
        # a query of its own: Spark takes two of one id for one that is begun again
        self.depot.write(f"{run}/{QUERY}", json.dumps({"id": str(uuid.uuid4())}))
        return True

    def _of(self, run: str, said: str) -> str:
        """Have what names the files of some run name those of this one."""
        root = self.depot.url(run).removesuffix(run)
        return re.sub(rf"{re.escape(root)}\d+\.\d+/", f"{root}{run}/", said)


def _order(run: str) -> tuple[int, ...]:
    return tuple(int(part) for part in run.split("."))
