"""Savepoints among checkpoints: complete or absent, kept by every removal, and the only state from
which a tier continues that was started from one.
"""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.commands import savepoint as savepoint_command
from sluice.driver.state.checkpoint_selection import Candidate
from sluice.driver.state.checkpoint_store import Depot
from sluice.driver.state.checkpoints import SAVED, SAVEPOINTS, Checkpoints, Code, as_candidate, counts
from sluice.sinks.batches import LastBatch
from sluice_ops.model.ids import TierName
from sluice_ops.model.savepoint import Savepoint, StartFrom
from tests.unit.sluice.test_checkpoint_store import batch, depot, ledger_batch

__all__ = ["depot"]


def described(name: str, candidate: Candidate, code: Code) -> Savepoint:
    committed = candidate.committed
    return Savepoint(
        name=name,
        tier=TierName("by-user"),
        taken_at=candidate.number,
        by="cli:anna",
        release=code.release,
        shape=None,
        number=candidate.number,
        batch=committed.batch,
        ends=dict(committed.ends),
        streams={},
        partitions=committed.partitions,
    )


def save(checkpoints: Checkpoints, name: str, endings: list[LastBatch]) -> Savepoint | None:
    return checkpoints.save(name, endings, lambda candidate, code: described(name, candidate, code))


def with_batches(depot: Depot, code: Code = Code()) -> tuple[Checkpoints, list[LastBatch]]:  # noqa: B008
    """Return checkpoints of a run with three batches, and the ledger, the newest batch first."""
    checkpoints = Checkpoints(depot, code)
    checkpoints.begin(1, [])
    for number in range(3):
        batch(depot, "1.0", number, end=10 * number + 10)
    return checkpoints, [ledger_batch(number, 10 * number + 10) for number in (2, 1, 0)]


def test_a_savepoint_outlives_every_removal_of_checkpoints(depot: Depot) -> None:
    checkpoints, endings = with_batches(depot, Code("r1", ("sum",)))
    saved = save(checkpoints, "before-fix", endings[1:])
    assert saved is not None
    assert (saved.number, saved.batch, saved.release) == (1, 1, "r1")
    assert checkpoints.savepoints() == [saved]
    checkpoints.begin(2, endings)
    checkpoints.prune("2.0", others=True)
    assert checkpoints.savepoint("before-fix") == saved
    run, begun = checkpoints.begin(3, [], as_candidate(saved))
    assert begun is not None
    assert checkpoints.ends(run, begun.committed.batch) == {"in/0": 20}
    assert depot.read(f"{run}/state/0/1/2.changelog") == "1.0 1"
    assert not depot.exists(f"{run}/state/0/1/3.changelog"), "the batch after the savepoint is left out"


def test_a_name_is_taken_until_the_savepoint_is_removed(depot: Depot) -> None:
    checkpoints, endings = with_batches(depot)
    assert not checkpoints.forget("before-fix")
    save(checkpoints, "before-fix", endings[1:])
    with pytest.raises(FileExistsError):
        save(checkpoints, "before-fix", endings)
    assert checkpoints.forget("before-fix")
    assert checkpoints.savepoints() == []
    again = save(checkpoints, "before-fix", endings)
    assert again is not None
    assert again.number == 2


def test_an_interrupted_savepoint_is_none_and_leaves_its_name_free(depot: Depot) -> None:
    checkpoints, endings = with_batches(depot)

    def interrupted(_candidate: Candidate, _code: Code) -> Savepoint:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        checkpoints.save("before-fix", endings, interrupted)
    assert checkpoints.savepoints() == []
    assert save(checkpoints, "nothing", [ledger_batch(9, 99)]) is None, "no state is of a batch in the ledger"
    for name in ("before-fix", "nothing"):
        assert save(checkpoints, name, endings) is not None


def test_incomplete_savepoints_are_listed_and_can_be_removed(depot: Depot) -> None:
    checkpoints, endings = with_batches(depot)
    for name in ("whole", "taken", "removed"):
        assert save(checkpoints, name, endings) is not None
    # as after a kill while one is taken, before its files are there; and while another is removed
    for name in ("taken", "removed"):
        depot.remove(f"{SAVEPOINTS}/{name}")
    depot.remove(f"{SAVED}/taken")
    assert depot.make(f"{SAVEPOINTS}/taken")
    assert [each.name for each in checkpoints.savepoints()] == ["whole"]
    assert checkpoints.incomplete_savepoints() == ["removed", "taken"]
    assert [checkpoints.forget(name) for name in ("taken", "removed")] == [True, True]
    assert checkpoints.incomplete_savepoints() == []
    assert not checkpoints.forget("taken")


def test_whole_paths_in_a_savepoint_become_those_of_the_run(depot: Depot) -> None:
    checkpoints, endings = with_batches(depot)
    schema = "state/0/_metadata/v2/0"
    depot.write(f"1.0/{schema}", json.dumps({"path": depot.url("1.0/state/0/_stateSchema/0")}))
    saved = save(checkpoints, "before-fix", endings)
    assert saved is not None
    run, _ = checkpoints.begin(2, [], as_candidate(saved))
    assert json.loads(depot.read(f"{run}/{schema}")) == {"path": depot.url(f"{run}/state/0/_stateSchema/0")}


ACTIONS = st.one_of(
    st.sampled_from(["write", "write_and_die", "compute", "left_behind", "prune"]),
    st.tuples(st.sampled_from(["save", "start"]), st.sampled_from(["a", "b"])),
)


@given(actions=st.lists(ACTIONS, max_size=20))
def test_a_tier_continues_only_from_its_last_start(actions: list[str | tuple[str, str]]) -> None:
    tier = ATier()
    for action in actions:
        name, *words = (action,) if isinstance(action, str) else action
        getattr(tier, name)(*words)
        tier.restart()
        assert tier.state == tier.expected


class Memory(Depot):
    """Files in memory."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}

    def url(self, folder: str) -> str:
        return folder

    def probe(self) -> None: ...

    def make(self, folder: str) -> bool:
        made = not self.names(folder) and f"{folder}/.made" not in self.files
        self.files[f"{folder}/.made"] = ""
        return made

    def folders(self, below: str = "") -> list[str]:
        prefix = f"{below}/" if below else ""
        names = (name for name in self.files if name.startswith(prefix))
        return sorted({name.removeprefix(prefix).partition("/")[0] for name in names})

    def names(self, folder: str) -> list[str]:
        below = [name.removeprefix(f"{folder}/") for name in self.files if name.startswith(f"{folder}/")]
        return [name for name in below if not name.rpartition("/")[2].startswith(".")]

    def exists(self, name: str) -> bool:
        return name in self.files

    def read(self, name: str) -> str:
        if name not in self.files:
            raise FileNotFoundError(name)
        return self.files[name]

    def write(self, name: str, content: str) -> None:
        self.files[name] = content

    def lend(self, name: str, to: str) -> None:
        self.files[to] = self.read(name)

    def is_whole(self, name: str) -> bool:
        return name in self.files

    def sync(self, folder: str) -> None:
        assert self.names(folder)

    def remove(self, folder: str) -> None:
        self.files = {name: text for name, text in self.files.items() if not name.startswith(f"{folder}/")}


class ATier:
    """A tier's runs, ledger and savepoints. A state is the list of all that it counted."""

    def __init__(self) -> None:
        self.depot = Memory()
        self.begun: StartFrom | None = None
        self.saved: dict[str, str] = {}
        self.left: list[tuple[str, str | None]] = []
        """The runs before starts from a savepoint, with their origin."""
        self.incarnation = 1
        self.run, _ = self.checkpoints.begin(1, [])
        self.ledger = [ledger_batch(0, 10)]
        self.batch, self.state = 0, "0"
        self.expected = self.state
        self._commit(self.run, 0, self.state)

    @property
    def checkpoints(self) -> Checkpoints:
        return Checkpoints(self.depot, Code(origin=None if self.begun is None else self.begun.origin))

    @property
    def endings(self) -> list[LastBatch]:
        return [ending for ending in self.ledger if counts(ending, self.begun)]

    @property
    def has_written(self) -> bool:
        """Whether the ledger has a batch since the last start."""
        return self.begun is None or self.ledger[0].number > self.begun.after

    def restart(self) -> None:
        """Begin a new run from what ledger and checkpoints have."""
        self.incarnation += 1
        saved = None if self.begun is None else self.checkpoints.savepoint(self.begun.name)
        self.run, candidate = self.checkpoints.begin(
            self.incarnation, self.endings, None if saved is None else as_candidate(saved)
        )
        assert candidate is not None
        self.batch = candidate.committed.batch
        self.state = self.depot.read(f"{self.run}/state/0/0/{self.batch + 1}.changelog")

    def write(self) -> None:
        """Count ten records beyond the ledger's end, and write them."""
        self.write_and_die()
        self.expected = f"{self.state} {self.ledger[0].number}"
        self._commit(self.run, self.batch + 1, self.expected)

    def write_and_die(self) -> None:
        """Write ten records more, and die before Spark commits the batch."""
        number = self.ledger[0].number + 1
        self.ledger.insert(0, ledger_batch(number, 10 * number + 10))

    def compute(self) -> None:
        """Count up to the ledger's end after a start, and die before anything is written."""
        if not self.has_written:
            self._commit(self.run, self.batch + 1, "computed")

    def left_behind(self) -> None:
        """A run from before the last start commits a batch that ends where the ledger does."""
        for run, origin in self.left:
            if origin != self.checkpoints.code.origin:
                self._commit(run, 50, "left behind")

    def prune(self) -> None:
        """Remove what the run does not need, once it has written."""
        if self.has_written:
            self.checkpoints.prune(self.run, others=True)

    def save(self, name: str) -> None:
        if name not in self.saved and save(self.checkpoints, name, self.endings) is not None:
            self.saved[name] = self.state

    def start(self, name: str) -> None:
        """Stop, and start from a savepoint."""
        if name in self.saved:
            self.left.append((self.run, self.checkpoints.code.origin))
            last = self.ledger[0]
            self.begun = StartFrom(name=name, after=last.number, ends=last.ends)
            self.expected = self.saved[name]

    def _commit(self, run: str, number: int, content: str) -> None:
        batch(self.depot, run, number, end=self.ledger[0].ends["in/0"])
        for partition in range(2):
            for version in range(1, number + 2):
                name = f"{run}/state/0/{partition}/{version}.changelog"
                if version == number + 1 or not self.depot.exists(name):
                    self.depot.write(name, content)


def test_the_list_says_what_to_do_about_an_incomplete_savepoint(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = ([], [savepoint_command.Incomplete(TierName("by-user"), "half")])
    monkeypatch.setattr(savepoint_command, "all_savepoints", lambda: listed)
    assert savepoint_command.main(["list"]) == 0
    assert "`sluice savepoint by-user half --remove`" in capsys.readouterr().out
    assert savepoint_command.main(["list", "--json"]) == 0
    (line,) = json.loads(capsys.readouterr().out)
    assert (line["name"], line["complete"], line["taken_at"]) == ("half", False, None)
