"""The checkpoints of a tier with state, one folder for each run: made from an earlier checkpoint,
read and removed.
"""

import json
import re
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass

import structlog

from sluice.driver.state.checkpoint_selection import QUERY, Candidate, Committed, candidates, manifest
from sluice.driver.state.checkpoint_store import Depot
from sluice.driver.state.offset_log import offsets_of, partitions_of
from sluice.sinks.batches import LastBatch
from sluice.sinks.ledger import Ledger
from sluice_ops.model.release import same_state
from sluice_ops.model.savepoint import Savepoint, StartFrom

log = structlog.get_logger()
LEDGER_BATCHES = 100
"""The number of the ledger's last batches whose checkpoints are considered.

Spark keeps the checkpoints of a fifth of them (`minBatchesToRetain`).
"""
RUN = re.compile(r"\d+\.\d+")
WHOLE_PATHS = re.compile(r"/state/\d+/_metadata/v2/\d+$")
"""Files with whole paths of an operator's other files.

A copy for another run needs that run's paths.
"""
LENDERS = 16
"""How many files are linked or copied at the same time; in a bucket each takes a request."""
MADE_BY = "made-by"
"""The folder with the code of each run. It is beside the runs, where Spark does not look."""
SAVEPOINTS = "savepoints"
"""The folder with the description of each savepoint."""
SAVED = "saved"
"""The folder with the files of each savepoint. It is no run, so nothing removes it."""
ABOUT = "about"
"""The file that describes a savepoint."""
COMMIT = re.compile(r"commits/(\d+)")


@dataclass(frozen=True)
class Code:
    """The code of a run, as far as it is known: unpublished code has neither release nor state
    plan.
    """

    release: str | None = None
    holds: tuple[str, ...] | None = None
    """The state plan, operator by operator."""
    origin: str | None = None
    """The start from a savepoint from which the state comes; None: from none."""

    def fits(self, other: "Code") -> bool:
        """Tell whether this code can continue with the state of other code; True if a state plan is
        unknown.

        A tier that was started from a savepoint leaves all other state behind.
        """
        return self.origin == other.origin and (
            self.holds is None or other.holds is None or same_state(self.holds, other.holds)
        )

    def is_same(self, other: "Code") -> bool:
        """Tell whether both are the same release; True if a release is unknown."""
        return None in {self.release, other.release} or self.release == other.release


def in_force(begun: StartFrom | None, ledger: Ledger) -> StartFrom | None:
    """Return the tier's last start from a savepoint; None if there was none, or if a person made
    the ledger begin anew since.
    """
    batch = None if begun is None else ledger.batch(begun.after)
    return begun if begun is not None and batch is not None and batch.ends == begun.ends else None


def counts(ending: LastBatch, begun: StartFrom | None) -> bool:
    """Tell whether a run may continue from a batch of the ledger; `begun` is the tier's last start
    from a savepoint.

    At earlier batches, the table has rows that the state since that start did not make. Pure.
    """
    return begun is None or ending.number > begun.after


def as_candidate(savepoint: Savepoint) -> Candidate:
    """Return a savepoint's state. Pure."""
    folder = f"{SAVED}/{savepoint.name}"
    return Candidate(
        Committed(folder, savepoint.batch, savepoint.ends, savepoint.partitions), savepoint.number
    )


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of one tier, which all hosts share."""

    depot: Depot
    code: Code = Code()
    """The code of new runs."""

    def begin(
        self, incarnation: int, endings: Sequence[LastBatch], saved: Candidate | None = None
    ) -> tuple[str, Candidate | None]:
        """Make the folder of a new run, with the newest state of a batch in the ledger, or else
        with the savepoint `saved`; empty if there is none.

        Checkpoints of the same code come first. If other code was tried in between, the results
        that it wrote are computed and written again.
        """
        run = self._make(incarnation)
        for candidate in (*self._in_ledger(endings), *([] if saved is None else [saved])):
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

    def save(
        self, name: str, endings: Sequence[LastBatch], describe: Callable[[Candidate, Code], Savepoint]
    ) -> Savepoint | None:
        """Copy the newest state of a batch in the ledger into a savepoint; None if there is none.

        The savepoint counts once its description is written. FileExistsError: the name is taken.
        """
        place, files = f"{SAVEPOINTS}/{name}", f"{SAVED}/{name}"
        if not self.depot.make(place):
            raise FileExistsError(name)
        saved = None
        try:
            self.depot.remove(files)  # of a savepoint whose removal was interrupted
            self.depot.make(files)
            for candidate in self._in_ledger(endings):
                code = self._made_by(candidate.committed.run)
                if self._lend(candidate.committed, files, self.depot.lend):
                    self.depot.sync(files)
                    savepoint = describe(candidate, code)
                    self.depot.write(f"{place}/{ABOUT}", savepoint.model_dump_json())
                    saved = savepoint
                    break
        finally:
            if saved is None:
                self.forget(name)
        return saved

    def savepoints(self) -> list[Savepoint]:
        """Return the complete savepoints, the oldest first."""
        names = (name.partition("/") for name in self.depot.names(SAVEPOINTS))
        read = (self.savepoint(name) for name, _, file in names if file == ABOUT)
        return sorted(filter(None, read), key=lambda savepoint: savepoint.taken_at)

    def incomplete_savepoints(self) -> list[str]:
        """Return the names of savepoints that are being taken or removed, or were interrupted."""
        names = {*self.depot.folders(SAVEPOINTS), *self.depot.folders(SAVED)}
        return sorted(name for name in names if not self.depot.exists(f"{SAVEPOINTS}/{name}/{ABOUT}"))

    def savepoint(self, name: str) -> Savepoint | None:
        """Return a complete savepoint; None if there is none of this name."""
        try:
            about = self.depot.read(f"{SAVEPOINTS}/{name}/{ABOUT}")
        except FileNotFoundError:
            return None
        return Savepoint.model_validate_json(about, extra="allow")

    def fits(self, savepoint: Savepoint) -> bool:
        """Tell whether the code of new runs can continue with a savepoint's state."""
        state = None if savepoint.shape is None else savepoint.shape.state
        holds = None if state is None else state.operators or None
        return self.code.fits(Code(savepoint.release, holds, self.code.origin))

    def forget(self, name: str) -> bool:
        """Remove a savepoint, also an incomplete one; return whether there was one."""
        place, files = f"{SAVEPOINTS}/{name}", f"{SAVED}/{name}"
        existed = not self.depot.make(place) or bool(self.depot.names(files))
        self.depot.remove(place)
        self.depot.remove(files)
        return existed

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
        holds = None if code["holds"] is None else tuple(code["holds"])
        return Code(code["release"], holds, code.get("origin"))

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

    def _in_ledger(self, endings: Sequence[LastBatch]) -> list[Candidate]:
        """Return the batches in the ledger from which this code may continue, the best first."""
        made_by = {name: self._made_by(name) for name in self._runs()}
        committed = (
            batch for name, code in made_by.items() if self.code.fits(code) for batch in self._commits(name)
        )
        return sorted(
            candidates([(last.number, last.ends) for last in endings], committed),
            key=lambda candidate: not self.code.is_same(made_by[candidate.committed.run]),
        )

    def _copy(self, committed: Committed, run: str) -> bool:
        """Link or copy the files of a committed batch into a run's folder; return whether all were
        there.
        """

        def lend(name: str, to: str) -> None:
            if WHOLE_PATHS.search(name):
                self.depot.write(to, self._with_paths_of(run, self.depot.read(name)))
            else:
                self.depot.lend(name, to)

        if not self._lend(committed, run, lend):
            return False
        # an id of its own, for Spark takes two queries with one id for a restarted query
        self.depot.write(f"{run}/{QUERY}", json.dumps({"id": str(uuid.uuid4())}))
        return True

    def _lend(self, committed: Committed, folder: str, lend: Callable[[str, str], None]) -> bool:
        """Lend the files of a committed batch to a folder; return whether all were there."""
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

        def lend_if_there(name: str) -> None:
            with suppress(FileNotFoundError):  # the run goes on, and removes old files
                lend(f"{committed.run}/{name}", f"{folder}/{name}")

        commits = [name for name in files if COMMIT.fullmatch(name)]
        with ThreadPoolExecutor(LENDERS) as pool:
            for group in ([name for name in files if name not in commits], commits):
                deque(pool.map(lend_if_there, group), maxlen=0)
        if manifest(self.depot.names(folder), committed.batch, committed.partitions) is None:
            self.depot.remove(folder)
            self.depot.make(folder)
            return False
        return True

    def _with_paths_of(self, run: str, content: str) -> str:
        """Return the content with the paths of another run replaced by those of this run."""
        root = self.depot.url(run).removesuffix(run)
        return re.sub(rf"{re.escape(root)}\d+\.\d+/", f"{root}{run}/", content)


def _order(run: str) -> tuple[int, ...]:
    return tuple(int(part) for part in run.split("."))
