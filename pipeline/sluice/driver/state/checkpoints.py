"""The checkpoints of a tier with state, one folder for each run: read, begun with the files of an earlier one, and removed."""

import json
import re
import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass

import structlog

from sluice.driver.state.checkpoint_selection import QUERY, Committed, Vouched, manifest, vouched
from sluice.driver.state.checkpoint_store import Depot
from sluice.driver.state.offset_log import offsets_of, partitions_of
from sluice.sinks.batches import LastBatch

log = structlog.get_logger()
RUN = re.compile(r"\d+\.\d+")
WHOLE_PATHS = re.compile(r"state/\d+/_metadata/v2/\d+")
"""Says of an operator where its files are, with their whole paths: of another run, they name another run's files."""
LENDERS = 16
"""So many files are lent at once: in a bucket each takes a request."""
MADE_BY = "made-by"
"""The folder that says of each run by which code it was made: beside the runs, where Spark does not look."""
COMMIT = re.compile(r"commits/(\d+)")


@dataclass(frozen=True)
class Code:
    """What is known of the code that a run was made by, or is to go on with; nothing of what was published nowhere."""

    release: str | None = None
    holds: tuple[str, ...] | None = None
    """What it holds in Spark, operator by operator."""

    def fits(self, other: "Code") -> bool:
        """Tell whether it may go on with what another has made."""
        return None in {self.holds, other.holds} or self.holds == other.holds

    def is_same(self, other: "Code") -> bool:
        """Tell whether both are one, as far as anybody knows."""
        return None in {self.release, other.release} or self.release == other.release


@dataclass(frozen=True)
class Checkpoints:
    """A tier's own, which all hosts share."""

    depot: Depot
    code: Code = Code()
    """What is to go on."""

    def begin(self, incarnation: int, endings: Sequence[LastBatch]) -> tuple[str, Vouched | None]:
        """Make the folder of a new run, with the newest state that the ledger vouches for, or empty where there is none.

        What its own code has made comes first: where other code was tried in between, all that it wrote is made and written again.
        """
        run = self._make(incarnation)
        made_by = {name: self._made_by(name) for name in self._runs()}
        committed = (
            each for name, code in made_by.items() if self.code.fits(code) for each in self._commits(name)
        )
        found = vouched([(last.number, last.ends) for last in endings], committed)
        for each in sorted(found, key=lambda each: not self.code.is_same(made_by[each.committed.run])):
            if self._give(each.committed, run):
                log.info(
                    "begins from a checkpoint",
                    run=run,
                    of=each.committed.run,
                    batch=each.committed.batch,
                    ledger=each.number,
                )
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
        whole = (
            (each.batch, found)
            for each in committed
            if (found := manifest(names, each.batch, each.partitions)) is not None
        )
        return next(whole, None)

    def ends(self, run: str, batch: int) -> dict[str, int]:
        """Return where a batch ends, as its run's checkpoint has it."""
        return offsets_of(self.depot.read(f"{run}/offsets/{batch}"))

    def committed(self, run: str, batch: int) -> bool:
        """Tell whether a run's query has committed a batch."""
        return self.depot.exists(f"{run}/commits/{batch}")

    def prune(self, keep: str, *, others: bool) -> None:
        """Remove the folders of runs before that one, of this incarnation and of earlier ones; those of `others`' code too, or not.

        What that one has outlives a loss of power before they go.
        """
        self.depot.sync(keep)
        for run in self._runs():
            if _order(run) < _order(keep) and (others or self.code.is_same(self._made_by(run))):
                self.depot.remove(run)
                self.depot.remove(f"{MADE_BY}/{run}")

    def _make(self, incarnation: int) -> str:
        """Make a folder by the first number that no run of this incarnation has had, in any process of it."""
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
            said = json.loads(self.depot.read(f"{MADE_BY}/{run}/code"))
        except FileNotFoundError:
            return Code()
        return Code(said["release"], None if said["holds"] is None else tuple(said["holds"]))

    def _commits(self, run: str, names: Sequence[str] | None = None) -> Iterator[Committed]:
        for name in self.depot.names(run) if names is None else names:
            if not (found := COMMIT.fullmatch(name)):
                continue
            try:
                json.loads(
                    self.depot.read(f"{run}/{name}").splitlines()[1]
                )  # or Spark could not read it either
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
                    self.depot.write(
                        f"{run}/{name}", self._of(run, self.depot.read(f"{committed.run}/{name}"))
                    )
                else:
                    self.depot.lend(f"{committed.run}/{name}", f"{run}/{name}")

        files = manifest(self.depot.names(committed.run), committed.batch, committed.partitions) or ()
        torn = next((name for name in files if not self.depot.is_whole(f"{committed.run}/{name}")), None)
        if torn is not None:
            log.warning(
                "a checkpoint that was cut short is passed over",
                run=committed.run,
                batch=committed.batch,
                file=torn,
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
        # a query of its own: Spark takes two of one id for one that is begun again
        self.depot.write(f"{run}/{QUERY}", json.dumps({"id": str(uuid.uuid4())}))
        return True

    def _of(self, run: str, said: str) -> str:
        """Have what names the files of some run name those of this one."""
        root = self.depot.url(run).removesuffix(run)
        return re.sub(rf"{re.escape(root)}\d+\.\d+/", f"{root}{run}/", said)


def _order(run: str) -> tuple[int, ...]:
    return tuple(int(part) for part in run.split("."))
