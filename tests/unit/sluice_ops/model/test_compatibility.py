"""Incompatible code is refused with the name of the missing stream, column, key or state.

Additions are allowed.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_ops.model.compatibility import incompatibilities
from sluice_ops.model.release import SinkShape, StateShape, StreamShape, TierShape

RAW = StreamShape(name="raw")
HITS = StreamShape(name="hits", columns={"id": "string", "at": "bigint"}, grouping="Fields(columns=('id',))")
TABLE = SinkShape(kind="Latest", name="sums", columns={"who": "text", "hits": "bigint"}, key=("who",))
STATE = StateShape(lateness=60, time="at", operators=("Aggregate of who, window 10 s",))
ENTRY = TierShape(inputs=(RAW,), outputs=(HITS,))
SUMS = TierShape(inputs=(HITS,), sink=TABLE, state=STATE)
KEPT, OUT = (
    SinkShape(kind=kind, name=name, columns={}) for kind, name in (("Once", "kept"), ("KafkaTopic", "out"))
)
SEVERAL = TierShape(inputs=(HITS,), sink=KEPT, more_sinks=(OUT,))
OTHERS = {"entry": ENTRY, "sums": SUMS, "several": SEVERAL}


def hits_with(**more):
    return HITS.model_copy(update=more)


def entry_with(**more):
    return ENTRY.model_copy(update=more)


def sums_with(**more):
    return SUMS.model_copy(update=more)


def refusal(tier, after):
    return "; ".join(incompatibilities(tier, OTHERS[tier], after, OTHERS))


@pytest.mark.parametrize(
    ("tier", "after", "message"),
    [
        (
            "entry",
            entry_with(outputs=(hits_with(columns={"id": "string"}),)),
            "sums reads column at of hits as it runs now",
        ),
        (
            "entry",
            entry_with(outputs=(hits_with(columns={"id": "string", "at": "timestamp"}),)),
            (
                "column at as bigint (it is written as timestamp) of hits as it runs now, which the new code "
                "does not write; upgrade sums first"
            ),
        ),
        (
            "entry",
            entry_with(outputs=(StreamShape(name="new", columns={}),)),
            "sums reads hits as it runs now",
        ),
        (
            "entry",
            entry_with(outputs=(hits_with(grouping="Shuffle()"),)),
            "hits is grouped by Shuffle(), and was grouped by Fields(columns=('id',))",
        ),
        (
            "entry",
            entry_with(outputs=(hits_with(format="Avro"),)),
            "hits is in Avro in the new code, but sums reads it in JSON as it runs now",
        ),
        (
            "sums",
            sums_with(inputs=(hits_with(format="Avro"),)),
            "hits is in Avro in the new code, but entry writes it in JSON as it runs now",
        ),
        (
            "entry",
            entry_with(outputs=(), sink=TABLE),
            "the new code writes into Latest sums, and the old code into streams",
        ),
        ("entry", entry_with(state=STATE), "the new code holds state in Spark, and the old code held none"),
        ("sums", sums_with(inputs=(RAW,)), "the new code reads raw, and the old code hits"),
        ("sums", sums_with(inputs=(RAW, HITS)), "add new inputs at the end"),
        (
            "sums",
            sums_with(inputs=(hits_with(columns={"id": "string", "at": "bigint", "who": "string"}),)),
            (
                "the new code reads column who of hits, which entry does not write as it runs now; "
                "upgrade entry first"
            ),
        ),
        (
            "sums",
            sums_with(sink=TABLE.model_copy(update={"name": "other"})),
            "the new code writes into Latest other, and the old code into Latest sums",
        ),
        (
            "sums",
            sums_with(sink=TABLE.model_copy(update={"key": ("hits",)})),
            "the key of sums is hits, and was who",
        ),
        (
            "sums",
            sums_with(sink=TABLE.model_copy(update={"columns": {"who": "text"}})),
            "sums has column hits, which the new code does not fill",
        ),
        (
            "sums",
            sums_with(sink=TABLE.model_copy(update={"columns": {**TABLE.columns, "hits": "text"}})),
            (
                f"column hits of sums is {TABLE.columns['hits']}, and the new code declares it as text; "
                f"declare {TABLE.columns['hits']}, or a new column of another name"
            ),
        ),
        (
            "several",
            SEVERAL.model_copy(update={"more_sinks": ()}),
            "the new code does not write KafkaTopic out, so its output would end; keep this sink",
        ),
        (
            "several",
            SEVERAL.model_copy(update={"more_sinks": (OUT.model_copy(update={"kind": "Post"}),)}),
            "the new code writes into Post out, and the old code into KafkaTopic out",
        ),
        (
            "several",
            SEVERAL.model_copy(update={"sink": OUT, "more_sinks": (KEPT,)}),
            "kept is no longer the first sink, whose rows the ledger counts; name it first",
        ),
        ("sums", sums_with(state=None), "the new code holds no state in Spark, and the old code held some"),
        (
            "sums",
            sums_with(state=STATE.model_copy(update={"lateness": 30})),
            "records are late after 30 s, and were late after 60 s",
        ),
        (
            "sums",
            sums_with(state=STATE.model_copy(update={"time": None})),
            "the time of a record is its arrival, and was at",
        ),
        (
            "sums",
            sums_with(state=STATE.model_copy(update={"operators": ("Aggregate of who, window 20 s",)})),
            (
                "the state of the new code holds Aggregate of who, window 20 s, and the checkpoint holds "
                "Aggregate of who, window 10 s"
            ),
        ),
    ],
)
def test_code_that_breaks_other_tiers_or_its_state_is_refused_by_name(tier, after, message):
    assert message in refusal(tier, after)


@pytest.mark.parametrize(
    ("tier", "after"),
    [
        (
            "entry",
            entry_with(
                outputs=(
                    hits_with(columns={"id": "string", "at": "bigint", "more": "string"}),
                    StreamShape(name="new", columns={}),
                )
            ),
        ),
        ("sums", sums_with(inputs=(HITS, RAW))),
        ("sums", sums_with(inputs=(hits_with(columns={"at": "bigint"}),))),
        ("sums", sums_with(sink=TABLE.model_copy(update={"columns": {**TABLE.columns, "more": "text"}}))),
        ("several", SEVERAL.model_copy(update={"more_sinks": (TABLE, OUT)})),
    ],
)
def test_additions_and_unread_columns_are_allowed(tier, after):
    assert not refusal(tier, after)


names = st.sampled_from(["a", "b", "c"])
columns = st.dictionaries(names, st.sampled_from(["string", "bigint"]), max_size=3)
streams = st.builds(
    StreamShape, name=names, columns=st.none() | columns, grouping=st.sampled_from(["Local()", "Shuffle()"])
)
tiers = st.builds(
    TierShape,
    inputs=st.lists(streams, min_size=1, max_size=2, unique_by=lambda stream: stream.name).map(tuple),
    outputs=st.lists(streams, max_size=2, unique_by=lambda stream: stream.name).map(tuple),
    sink=st.none() | st.builds(SinkShape, kind=st.just("Once"), name=names, columns=columns),
    state=st.none() | st.builds(StateShape, lateness=st.integers(0, 1), time=st.none() | names),
)


@given(tiers, tiers)
def test_code_that_changes_nothing_for_others_is_never_refused(tier, body):
    assert incompatibilities("mine", tier, tier, {"mine": body}) == []


@given(tiers, tiers, tiers)
def test_a_handover_allowed_both_ways_keeps_inputs_sink_and_state(before, after, other):
    if not incompatibilities("mine", before, after, {"other": other}) and not incompatibilities(
        "mine", after, before, {"other": other}
    ):
        assert [stream.name for stream in before.inputs] == [stream.name for stream in after.inputs]
        assert before.sink == after.sink
        assert before.state == after.state
