"""The checkpoints of a tier with state, one folder for each run: made from an earlier checkpoint,
read and removed.
"""

import json
import re
import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass

import structlog

from sluice.driver.state.checkpoint_selection import QUERY, Candidate, Committed, candidates, manifest
from sluice.driver.state.checkpoint_store import Depot
from sluice.driver.state.offset_log import offsets_of, partitions_of
from sluice.sinks.batches import LastBatch

log = structlog.get_logger()
RUN = re.compile(r"\d+\.\d+")
WHOLE_PATHS = re.compile(r"state/\d+/_metadata/v2/\d+")
"""Files with whole paths of an operator's other files.

A copy for another run needs that run's paths.
"""
LENDERS = 16
"""How many files are linked or copied at the same time; in a bucket each takes a request."""
MADE_BY = "made-by"
"""The folder with the code of each run. It is beside the runs, where Spark does not look."""
COMMIT = re.compile(r"commits/(\d+)")


@dataclass(frozen=True)
class Code:
    """The code of a run, as far as it is known: unpublished code has neither release nor state
    plan.
    """

    release: str | None = None
    holds: tuple[str, ...] | None = None
    """The state plan, operator by operator."""

    def fits(self, other: "Code") -> bool:
        """Tell whether this code can continue with the state of other code; True if a state plan is
        unknown.
        """
        return None in {self.holds, other.holds} or self.holds == other.holds

    def is_same(self, other: "Code") -> bool:
        """Tell whether both are the same release; True if a release is unknown."""
        return None in {self.release, other.release} or self.release == other.release


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of one tier, which all hosts share."""

    depot: Depot
    code: Code = Code()
    """The code of new runs."""

    def begin(self, incarnation: int, endings: Sequence[LastBatch]) -> tuple[str, Candidate | None]:
        """Make the folder of a new run, with the newest state of a batch in the ledger; empty if
        there is none.

        Checkpoints of the same code come first. If other code was tried in between, the results
        that it wrote are computed and written again.
        """
        run = self._make(incarnation)
        made_by = {name: self._made_by(name) for name in self._runs()}
        committed = (
            batch for name, code in made_by.items() if self.code.fits(code) for batch in self._commits(name)
        )
        in_ledger = candidates([(last.number, last.ends) for last in endings], committed)
        for candidate in sorted(
            in_ledger, key=lambda candidate: not self.code.is_same(made_by[candidate.committed.run])
        ):
            if self._copy(candidate.committed, run):
                log.info(
                    "the run begins from a checkpoint",
                    run=run,
                    of=candidate.committed.run,
                    batch=candidate.committed.batch,
                    ledger=candidate.number,
                )
                return run, candidate
        return run, None

    def go_on(self, incarnation: int, run: str) -> tuple[str, Committed]:
        """Make the folder of a new run from the last batch that an ended run committed.

        FileNotFoundError if files of that batch are missing.
        """
        last = max(self._commits(run), key=lambda committed: committed.batch)
        after = self._make(incarnation)
        if not self._copy(last, after):
            message = f"{self.depot.url(run)} lacks files of its last batch, {last.batch}"
            raise FileNotFoundError(message)
        return after, last

    def manifest(self, run: str) -> tuple[int, tuple[str, ...]] | None:
        """Return the last batch that a run has committed, and the files of its checkpoint."""
        names = self.depot.names(run)
        newest_first = sorted(self._commits(run, names), key=lambda committed: committed.batch, reverse=True)
        complete = (
            (committed.batch, files)
            for committed in newest_first
            if (files := manifest(names, committed.batch, committed.partitions)) is not None
        )
        return next(complete, None)

    def ends(self, run: str, batch: int) -> dict[str, int]:
        """Return where a batch ends, from its run's checkpoint."""
        return offsets_of(self.depot.read(f"{run}/offsets/{batch}"))

    def committed(self, run: str, batch: int) -> bool:
        """Tell whether a run's query has committed a batch."""
        return self.depot.exists(f"{run}/commits/{batch}")

    def prune(self, keep: str, *, others: bool) -> None:
        """Remove the folders of all runs before the run `keep`; those of other code only with
        `others`.

        The kept run's files are synced first, so that they outlive a loss of power.
        """
        self.depot.sync(keep)
        for run in self._runs():
            if _order(run) < _order(keep) and (others or self.code.is_same(self._made_by(run))):
                self.depot.remove(run)
                self.depot.remove(f"{MADE_BY}/{run}")

    def _make(self, incarnation: int) -> str:
        """Make a folder with the first number that no process of this incarnation has used."""
        number = 0
        while not self.depot.make(run := f"{incarnation}.{number}"):
            number += 1
        if self.code != Code():
            self.depot.write(f"{MADE_BY}/{run}/code", json.dumps(asdict(self.code)))
        return run

    def _runs(self) -> list[str]:
        return sorted((name for name in self.depot.folders() if RUN.fullmatch(name)), key=_order)

    def _made_by(self, run: str) -> Code:
        try:
            code = json.loads(self.depot.read(f"{MADE_BY}/{run}/code"))
        except FileNotFoundError:
            return Code()
        return Code(code["release"], None if code["holds"] is None else tuple(code["holds"]))

    def _commits(self, run: str, names: Sequence[str] | None = None) -> Iterator[Committed]:
        for name in self.depot.names(run) if names is None else names:
            if not (match := COMMIT.fullmatch(name)):
                continue
            batch = match[1]
            try:
                # a commit that this cannot parse, Spark could not read either
                json.loads(self.depot.read(f"{run}/{name}").splitlines()[1])
                offsets = self.depot.read(f"{run}/offsets/{batch}")
                yield Committed(run, int(batch), offsets_of(offsets), partitions_of(offsets))
            except FileNotFoundError:  # the run goes on, and removes old files
                continue
            except (ValueError, LookupError) as error:
                log.warning("a damaged checkpoint is skipped", run=run, batch=batch, error=repr(error))

    def _copy(self, committed: Committed, run: str) -> bool:
        """Link or copy the files of a committed batch into a run's folder; return whether all were
        there.
        """

        def lend(name: str) -> None:
            with suppress(FileNotFoundError):  # likewise
                if WHOLE_PATHS.fullmatch(name):
                    self.depot.write(
                        f"{run}/{name}", self._with_paths_of(run, self.depot.read(f"{committed.run}/{name}"))
                    )
                else:
                    self.depot.lend(f"{committed.run}/{name}", f"{run}/{name}")

        files = manifest(self.depot.names(committed.run), committed.batch, committed.partitions) or ()
        short = next((name for name in files if not self.depot.is_whole(f"{committed.run}/{name}")), None)
        if short is not None:
            log.warning(
                "a checkpoint whose file was cut short is skipped",
                run=committed.run,
                batch=committed.batch,
                file=short,
            )
            return False
        commits = [name for name in files if COMMIT.fullmatch(name)]
        with ThreadPoolExecutor(LENDERS) as pool:
            for group in ([name for name in files if name not in commits], commits):
                deque(pool.map(lend, group), maxlen=0)
        if manifest(self.depot.names(run), committed.batch, committed.partitions) is None:
            self.depot.remove(run)
            self.depot.make(run)
            return False
        # an id of its own, for Spark takes two queries with one id for a restarted query
        self.depot.write(f"{run}/{QUERY}", json.dumps({"id": str(uuid.uuid4())}))
        return True

    def _with_paths_of(self, run: str, content: str) -> str:
        """Return the content with the paths of another run replaced by those of this run."""
        root = self.depot.url(run).removesuffix(run)
        return re.sub(rf"{re.escape(root)}\d+\.\d+/", f"{root}{run}/", content)


def _order(run: str) -> tuple[int, ...]:
    return tuple(int(part) for part in run.split("."))
