"""The state that a run begins from: that of the newest batch in the ledger, and all of it or none."""

from hypothesis import given
from hypothesis import strategies as st

from sluice.driver.state.checkpoint_selection import Committed, candidates, manifest

BATCH = st.integers(0, 12)


def written(batch, *, snapshots=(), stores=("state/0/0", "state/0/1", "state/1/0", "state/1/1")):
    """Return what Spark's folder holds once a batch is committed and the next one is half done."""
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


@given(there=BATCH, asked=BATCH)
def test_what_came_after_the_batch_is_no_part_of_it(there, asked):
    found = manifest(written(there), asked, 2)
    assert (found is None) == (asked > there)
    if found is None:
        return
    assert {name for name in found if name.startswith("offsets/")} == {
        f"offsets/{number}" for number in range(asked + 1)
    }
    assert (
        max(int(name.split("/")[-1].split(".")[0]) for name in found if name.endswith(".changelog"))
        == asked + 1
    )
    assert found[-1].startswith("commits/"), "who is cut short while linking has made no commit"
    assert {"sources/0/0", "state/0/_metadata/metadata", "state/0/0/SSTs/a.sst"} <= set(found)
    assert "metadata" not in found, "a run is a query of its own"


@given(batch=BATCH, snapshot=st.integers(1, 14), lost=st.integers(1, 14))
def test_a_state_that_lacks_a_change_since_its_snapshot_is_none(batch, snapshot, lost):
    files = written(batch, snapshots=[snapshot])
    gone = f"state/1/0/{lost}.changelog"
    files = [name for name in files if name != gone]
    counts = snapshot if snapshot <= batch + 1 else 0
    assert (manifest(files, batch, 2) is None) == (counts < lost <= batch + 1)


@given(batch=BATCH, lost=st.sampled_from(["state/0/1", "state/1/0"]))
def test_a_state_that_lacks_a_partition_or_a_store_is_none(batch, lost):
    assert manifest([name for name in written(batch) if not name.startswith(lost)], batch, 2) is None


@given(batch=BATCH, before=st.integers(1, 5), after=st.integers(1, 5))
def test_a_repartitioned_state_is_exactly_what_its_last_batch_wrote(batch, before, after):
    begun = written(
        batch, stores=[f"state/{operator}/{partition}" for operator in (0, 1) for partition in range(before)]
    )
    begun = [
        name
        for name in begun
        if name != f"offsets/{batch + 1}" and not name.endswith(f"/{batch + 2}.changelog")
    ]
    made = [
        f"state/{operator}/{partition}/{batch + 2}.zip" for operator in (0, 1) for partition in range(after)
    ]
    spread = [*begun, f"offsets/{batch + 1}", *made, f"commits/{batch + 1}"]
    found = manifest(spread, batch + 1, after)
    assert found is not None
    assert set(made) <= set(found)
    gone = tuple(
        f"state/{operator}/{partition}/" for operator in (0, 1) for partition in range(after, before)
    )
    assert not [name for name in found if name.startswith(gone)]
    assert manifest(spread, batch, before) == manifest(begun, batch, before), "what was there is there still"
    for lost in (*made, f"commits/{batch + 1}"):
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
    committed = [Committed(*each) for each in runs]
    found = candidates(ledger, committed)
    known = dict(ledger)
    assert all(known[each.number] == each.committed.ends for each in found)
    assert [each.number for each in found] == sorted((each.number for each in found), reverse=True)
    assert len(found) == sum(any(each.ends == ends for ends in known.values()) for each in committed)


def test_a_batch_that_the_ledger_does_not_have_is_not_vouched_for():
    ahead = Committed("2.0", 3, {"in/0": 9}, 2)
    assert candidates([(0, {"in/0": 5}), (1, {"in/0": 7})], [ahead]) == []
    (found,) = candidates([(0, {"in/0": 5}), (1, {"in/0": 7})], [ahead, Committed("1.0", 1, {"in/0": 7}, 2)])
    assert (found.number, found.committed.run) == (1, "1.0")
