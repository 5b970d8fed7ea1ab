"""The state from which a run begins: the whole state of the newest batch in the ledger, or none."""

from hypothesis import given
from hypothesis import strategies as st

from sluice.driver.state.checkpoint_selection import Committed, candidates, manifest

BATCH = st.integers(0, 12)


def checkpoint_files(batch, *, snapshots=(), stores=("state/0/0", "state/0/1", "state/1/0", "state/1/1")):
    """Return the files of Spark's checkpoint folder after the commit of a batch, with the next
    batch half done.
    """
    logs = [f"{log}/{number}" for log in ("offsets", "commits") for number in range(batch + 1)]
    changes = [f"{store}/{version}.changelog" for store in stores for version in range(1, batch + 3)]
    zips = [f"{store}/{version}.zip" for store in stores for version in snapshots]
    return [
        *logs,
        f"offsets/{batch + 1}",
        *changes,
        *zips,
        "metadata",
        "sources/0/0",
        "state/0/_metadata/metadata",
        "state/0/0/SSTs/a.sst",
    ]


@given(committed_batch=BATCH, wanted_batch=BATCH)
def test_files_of_later_batches_are_left_out(committed_batch, wanted_batch):
    files = manifest(checkpoint_files(committed_batch), wanted_batch, 2)
    assert (files is None) == (wanted_batch > committed_batch)
    if files is None:
        return
    assert {name for name in files if name.startswith("offsets/")} == {
        f"offsets/{number}" for number in range(wanted_batch + 1)
    }
    assert (
        max(int(name.split("/")[-1].split(".")[0]) for name in files if name.endswith(".changelog"))
        == wanted_batch + 1
    )
    assert files[-1].startswith("commits/"), (
        "commits are linked last, so an interrupted linking leaves no commit"
    )
    assert {"sources/0/0", "state/0/_metadata/metadata", "state/0/0/SSTs/a.sst"} <= set(files)
    assert "metadata" not in files, "each run is a new query with its own metadata"


@given(batch=BATCH, snapshot=st.integers(1, 14), lost=st.integers(1, 14))
def test_a_state_without_a_change_since_its_snapshot_is_refused(batch, snapshot, lost):
    files = checkpoint_files(batch, snapshots=[snapshot])
    missing = f"state/1/0/{lost}.changelog"
    files = [name for name in files if name != missing]
    counts = snapshot if snapshot <= batch + 1 else 0
    assert (manifest(files, batch, 2) is None) == (counts < lost <= batch + 1)


@given(batch=BATCH, lost=st.sampled_from(["state/0/1", "state/1/0"]))
def test_a_state_without_a_partition_or_a_store_is_refused(batch, lost):
    assert manifest([name for name in checkpoint_files(batch) if not name.startswith(lost)], batch, 2) is None


@given(batch=BATCH, before=st.integers(1, 5), after=st.integers(1, 5))
def test_a_repartitioned_state_has_the_files_of_its_last_batch(batch, before, after):
    begun = checkpoint_files(
        batch, stores=[f"state/{operator}/{partition}" for operator in (0, 1) for partition in range(before)]
    )
    begun = [
        name
        for name in begun
        if name != f"offsets/{batch + 1}" and not name.endswith(f"/{batch + 2}.changelog")
    ]
    snapshots = [
        f"state/{operator}/{partition}/{batch + 2}.zip" for operator in (0, 1) for partition in range(after)
    ]
    spread = [*begun, f"offsets/{batch + 1}", *snapshots, f"commits/{batch + 1}"]
    files = manifest(spread, batch + 1, after)
    assert files is not None
    assert set(snapshots) <= set(files)
    removed_partitions = tuple(
        f"state/{operator}/{partition}/" for operator in (0, 1) for partition in range(after, before)
    )
    assert not [name for name in files if name.startswith(removed_partitions)]
    assert manifest(spread, batch, before) == manifest(begun, batch, before), (
        "the state before the repartition must stay usable"
    )
    for lost in (*snapshots, f"commits/{batch + 1}"):
        assert manifest([name for name in spread if name != lost], batch + 1, after) is None


ENDS = st.fixed_dictionaries({"in/0": st.integers(0, 4), "in/1": st.integers(0, 4)})


@given(
    steps=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)).filter(any), max_size=8),
    runs=st.lists(
        st.tuples(st.sampled_from(["1.0", "1.1", "2.0"]), st.integers(0, 9), ENDS, st.integers(1, 4)),
        max_size=20,
    ),
)
def test_a_run_begins_at_the_end_of_a_ledger_batch_not_before_the_last(steps, runs):
    ends, ledger = {"in/0": 0, "in/1": 0}, []
    for number, (first, second) in enumerate(steps):
        ends = {"in/0": ends["in/0"] + first, "in/1": ends["in/1"] + second}
        ledger.append((number, ends))
    committed = [Committed(*checkpoint) for checkpoint in runs]
    selected = candidates(ledger, committed)
    known = dict(ledger)
    assert all(known[checkpoint.number] == checkpoint.committed.ends for checkpoint in selected)
    assert [checkpoint.number for checkpoint in selected] == sorted(
        (checkpoint.number for checkpoint in selected), reverse=True
    )
    assert len(selected) == sum(
        any(checkpoint.ends == ends for ends in known.values()) for checkpoint in committed
    )


def test_a_checkpoint_without_a_batch_in_the_ledger_is_not_used():
    ahead = Committed("2.0", 3, {"in/0": 9}, 2)
    assert candidates([(0, {"in/0": 5}), (1, {"in/0": 7})], [ahead]) == []
    (selected,) = candidates(
        [(0, {"in/0": 5}), (1, {"in/0": 7})], [ahead, Committed("1.0", 1, {"in/0": 7}, 2)]
    )
    assert (selected.number, selected.committed.run) == (1, "1.0")
