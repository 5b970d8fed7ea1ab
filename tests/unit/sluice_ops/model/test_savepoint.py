"""A savepoint is used only if every record since it is in Kafka and in the ledger, and the code
fits.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_ops.model.ids import TierName
from sluice_ops.model.release import SinkShape, StateShape, StreamShape, TierShape
from sluice_ops.model.savepoint import NAME, Savepoint, records_since, why_incompatible, why_unusable

SHAPE = TierShape(
    inputs=(StreamShape(name="in", columns={"id": "string"}),),
    sink=SinkShape(kind="Latest", name="sums", columns={"id": "text"}, key=("id",)),
    state=StateShape(lateness=60, time="at", operators=("Aggregate of id",)),
)
OFFSETS = st.dictionaries(st.sampled_from(["in/0", "in/1", "in/2"]), st.integers(0, 9))


def savepoint(**more: object) -> Savepoint:
    return Savepoint(
        name="before-fix",
        tier=TierName("sums"),
        taken_at=0.0,
        by="cli:anna",
        release="r1-00000000",
        shape=SHAPE,
        number=7,
        batch=3,
        ends={"in/0": 5, "in/1": 6},
        streams={"in": "topic-a"},
        partitions=2,
    ).model_copy(update=more)


@given(ends=OFFSETS, oldest=OFFSETS, lost=st.booleans(), topic=st.sampled_from(["topic-a", "topic-b"]))
def test_a_savepoint_is_used_only_without_any_loss(
    ends: dict[str, int], oldest: dict[str, int], lost: bool, topic: str
) -> None:
    ledger = None if lost else ends
    why = why_unusable(savepoint(ends=ends), ledger, {"in": topic}, oldest)
    needed = {(place, offset) for place in oldest for offset in range(ends.get(place, 0), 10)}
    in_kafka = {(place, offset) for place, first in oldest.items() for offset in range(first, 10)}
    assert (why is None) == (not lost and topic == "topic-a" and needed <= in_kafka)


def test_the_reason_names_the_records_that_are_gone() -> None:
    of_ledger = savepoint().ends
    assert "in/1: offsets 6 to 8" in str(why_unusable(savepoint(), of_ledger, {}, {"in/0": 5, "in/1": 9}))
    assert "in/2: offsets 0 to 2" in str(why_unusable(savepoint(), of_ledger, {}, {"in/2": 3})), (
        "a partition that was added after the savepoint is needed from its first record on"
    )
    assert "in was deleted" in str(why_unusable(savepoint(), of_ledger, {"in": "topic-b"}, {}))
    assert "no batch 7" in str(why_unusable(savepoint(), {"in/0": 5}, {}, {}))


@given(since=st.dictionaries(st.sampled_from(["in/0", "in/1", "in/2"]), st.integers(0, 9)))
def test_records_since_are_those_that_the_ledger_has_after_it(since: dict[str, int]) -> None:
    begins = savepoint().ends
    ends = begins | {place: begins.get(place, 0) + count for place, count in since.items()}
    assert records_since(savepoint(), ends) == sum(since.values())


def test_code_of_the_same_shape_continues() -> None:
    assert why_incompatible(savepoint(), SHAPE) is None
    wider = SinkShape(kind="Latest", name="sums", columns={"id": "text", "n": "int"}, key=("id",))
    assert why_incompatible(savepoint(), SHAPE.model_copy(update={"sink": wider})) is None


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({"state": StateShape(lateness=60, time="at", operators=("Aggregate of who",))}, "Aggregate of who"),
        ({"state": StateShape(lateness=9, time="at", operators=("Aggregate of id",))}, "late after 9 s"),
        ({"state": None}, "holds no state"),
        ({"inputs": ()}, "keep every input"),
    ],
)
def test_code_of_another_shape_is_refused_with_the_reason(other: dict[str, object], reason: str) -> None:
    why = why_incompatible(savepoint(), SHAPE.model_copy(update=other))
    assert why is not None
    assert reason in why
    assert "built again" not in why, "a savepoint is never built again"


def test_code_that_cannot_be_compared_is_refused() -> None:
    assert why_incompatible(savepoint(shape=None), SHAPE) is not None
    assert why_incompatible(savepoint(), None) is not None


@pytest.mark.parametrize("name", ["", "-a", "A", "a/b", "..", "a" * 64, "a b", "a\n"])
def test_a_name_that_could_leave_the_folder_is_refused(name: str) -> None:
    assert NAME.fullmatch(name) is None
