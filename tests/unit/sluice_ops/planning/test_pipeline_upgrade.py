"""All tiers get a release in an order in which they fit, and go back in the reverse order."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_ops.model.compatibility import incompatibilities
from sluice_ops.model.pipeline_upgrade import PipelineUpgrade
from sluice_ops.model.release import Release, SinkShape, StreamShape, TierShape
from sluice_ops.planning.pipeline_upgrade import Complete, Next, Returned, TierRuns, next_turn, order, stopped
from sluice_ops.planning.placement.cluster import RefusedError

OLD, NEW = "r1-aaaaaaaa", "r2-bbbbbbbb"
NAMES = ("counts", "enrich", "entry")


def shape(reads, writes, columns="", more_columns=""):
    read = StreamShape(name=reads, columns=dict.fromkeys(columns, "string"))
    written = StreamShape(name=writes, columns=dict.fromkeys(more_columns, "string"))
    return TierShape(inputs=(read,), outputs=(written,))


def chain(counts="", enrich=("", ""), entry=""):
    """Return the shapes of three tiers by the columns that they read and write."""
    return {
        "counts": shape("enriched", "rows", counts),
        "enrich": shape("hits", "enriched", enrich[0], enrich[1]),
        "entry": shape("raw", "hits", "", entry),
    }


def runs(shapes, **more):
    fields = {"release": OLD, "running": True, **more}
    return [TierRuns(name=name, shape=shapes[name], **fields) for name in NAMES]


def release(shapes):
    return Release(name=NEW, module="m", digest="d", published_at=1.0, tiers=shapes)


def test_tiers_that_fit_anyway_go_from_the_end_to_the_entry():
    assert order(runs(chain()), release(chain()), None).tiers == NAMES


def test_the_canary_goes_first():
    assert order(runs(chain()), release(chain()), "enrich").tiers == ("enrich", "counts", "entry")


def test_a_writer_of_a_new_column_goes_before_its_reader():
    after = chain(counts="a", enrich=("b", "a"), entry="b")
    planned = order(runs(chain()), release(after), None)
    assert planned.tiers == ("entry", "enrich", "counts")
    assert planned.notes == ()


def test_a_reader_goes_before_a_writer_that_drops_a_column():
    before = chain(counts="a", enrich=("b", "a"), entry="b")
    assert order(runs(before), release(chain()), None).tiers == NAMES


def test_a_canary_that_does_not_fit_first_is_refused_with_the_reason():
    after = chain(counts="a", enrich=("", "a"))
    with pytest.raises(RefusedError, match=r"no order.*counts: the new code reads column a.*Nothing was"):
        order(runs(chain()), release(after), "counts")


@pytest.mark.parametrize(
    ("canary", "reason"), [("nobody", "there is no tier 'nobody'"), ("counts", "already runs r2-bbbbbbbb")]
)
def test_a_canary_that_cannot_be_upgraded_is_refused(canary, reason):
    tiers = runs(chain())
    tiers[0] = TierRuns("counts", NEW, chain()["counts"], running=True)
    with pytest.raises(RefusedError, match=reason):
        order(tiers, release(chain()), canary)


def test_tiers_without_a_place_in_the_release_are_left_out_with_a_note():
    after = {name: each for name, each in chain().items() if name != "entry"}
    planned = order(runs(chain()), release(after), None)
    assert planned.tiers == ("counts", "enrich")
    assert planned.notes == ("entry is left out: release r2-bbbbbbbb has no such tier",)


def test_a_tier_that_could_not_go_back_goes_last():
    before = chain()
    sink = SinkShape(kind="Once", name="rows", columns={"id": "text"})
    before["counts"] = TierShape(inputs=before["counts"].inputs, sink=sink)
    wider = sink.model_copy(update={"columns": {"id": "text", "at": "text"}})
    after = {**before, "counts": before["counts"].model_copy(update={"sink": wider})}
    assert order(runs(before), release(after), None).tiers == ("enrich", "entry", "counts")
    noted = order(runs(before), release(after), "counts")
    assert noted.tiers[0] == "counts"
    assert "counts cannot go back by itself: rows has column at" in noted.notes[0]


def test_a_tier_of_unknown_code_is_upgraded_last_with_a_note():
    tiers = runs(chain())
    tiers[0] = TierRuns("counts", None, None, running=True)
    assert order(tiers, release(chain()), None).tiers == ("enrich", "entry", "counts")


COLUMNS = st.sets(st.sampled_from("ab"))
CHAINS = st.builds(chain, COLUMNS, st.tuples(COLUMNS, COLUMNS), COLUMNS)


def fits(tiers, before, after):
    """Tell whether each tier fits the others at its turn."""
    shapes = dict(before)
    for name in tiers:
        if incompatibilities(name, shapes[name], after[name], shapes):
            return False
        shapes[name] = after[name]
    return True


@given(CHAINS, CHAINS)
def test_an_order_is_found_if_there_is_one(before, after):
    possible = any(fits(each, before, after) for each in permutations(NAMES))
    try:
        planned = order(runs(before), release(after), None).tiers
    except RefusedError:
        assert not possible
    else:
        assert sorted(planned) == sorted(NAMES)
        assert fits(planned, before, after)


@given(st.permutations(NAMES), st.integers(0, 3))
def test_a_failed_upgrade_leaves_every_tier_on_its_old_release(tiers, fails_at):
    upgrade = PipelineUpgrade(release=NEW, run="r", by="b", begun_at=1.0, before=dict.fromkeys(tiers, OLD))
    now, went = dict.fromkeys(tiers, OLD), []
    while isinstance(turn := next_turn(upgrade, now), Next):
        if len(went) == fails_at and not upgrade.failed:
            upgrade = upgrade.model_copy(update={"failed": f"{turn.tier}: trial failed"})
            continue
        went.append((turn.tier, turn.release))
        now[turn.tier] = turn.release
        if not upgrade.failed:
            upgrade = upgrade.model_copy(update={"upgraded": (*upgrade.upgraded, turn.tier)})
    forward = [(tier, NEW) for tier in tiers[:fails_at]]
    if fails_at == len(tiers):
        assert isinstance(turn, Complete)
        assert went == forward
        return
    assert isinstance(turn, Returned)
    assert went == forward + [(tier, OLD) for tier in reversed(tiers[:fails_at])]
    assert f"failed: {tiers[fails_at]}: trial failed" in turn.sentence
    assert set(now.values()) == {OLD}


def test_a_tier_that_another_change_moved_on_is_left_alone():
    upgrade = PipelineUpgrade(
        release=NEW, run="r", by="b", begun_at=1.0, before={"counts": OLD}, upgraded=("counts",), failed="x"
    )
    assert isinstance(next_turn(upgrade, {"counts": "r3-cccccccc"}), Returned)


def test_a_stop_says_what_runs_and_how_to_go_on():
    upgrade = PipelineUpgrade(release=NEW, run="r", by="b", begun_at=1.0)
    now = {"counts": NEW, "entry": OLD}
    assert stopped(upgrade, now, "counts: it was interrupted") == (
        "the upgrade of the pipeline to r2-bbbbbbbb stopped: counts: it was interrupted. Now entry on "
        "r1-aaaaaaaa; counts on r2-bbbbbbbb. To continue: `sluice upgrade-pipeline --release r2-bbbbbbbb`, "
        "or trigger upgrade_pipeline again"
    )
    back = upgrade.model_copy(update={"failed": "entry: trial failed"})
    assert "Going back stopped: counts: no room" in stopped(back, now, "counts: no room")
