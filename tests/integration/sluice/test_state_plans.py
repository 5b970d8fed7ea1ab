"""The operators of a tier's state are the same in every plan of the same code, and differ if a
checkpoint could not be used.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from sluice.api import declarations
from sluice.checks.shapes import shape
from sluice.checks.state_plans import state_operators
from sluice_ops.model.compatibility import incompatibilities
from sluice_ops.model.ids import TierName
from sluice_ops.model.release import TierShape
from tests.integration.sluice.stateful_pipeline import Sum

HOLDING = declarations.load("tests.integration.sluice.stateful_pipeline")
pytestmark = pytest.mark.timeout(600)


def test_windows_joins_and_own_states_are_described(session: SparkSession) -> None:
    descriptions = {
        tier.name: state_operators(session, tier) for tier in HOLDING.tiers if tier.state is not None
    }
    assert descriptions["by-window"] == (
        "Aggregate of who, window(time, width 10000000, every 10000000, offset 0), count(1), sum(id)",
    )
    for name in ("pairs", "bought", "sold"):
        assert descriptions[name] == (  # as in the releases of former versions
            (
                "Join FULL OUTER of ((id = hit) AND "
                "((time >= cast(time + INTERVAL '00' SECOND as timestamp)) AND "
                "(time <= cast(time + INTERVAL '10' SECOND as timestamp))))"
            ),
        )
    kinds = [description.split(" of ")[0] for description in descriptions["paid"]]
    assert kinds == ["Aggregate", "Join FULL OUTER", "Join FULL OUTER"]
    assert descriptions["summed"] == (
        "TransformWithStateInPySpark of transformWithStateUDF(id, who, at, time), who, hits, ids",
        "variable of step 1: time mode None",
        "variable of step 1: value sums struct<hits:bigint,ids:bigint>",
    )
    assert descriptions["since-rest"][1:] == (
        "variable of step 1: time mode ProcessingTime",
        "variable of step 1: value sums struct<hits:bigint,ids:bigint> with a time to live",
    )
    assert descriptions == {
        tier.name: state_operators(session, tier) for tier in HOLDING.tiers if tier.state is not None
    }


def counted(
    keys: tuple[str, ...] = ("who",),
    width: str = "10 seconds",
    slide: str | None = None,
    summed_column: str = "id",
) -> declarations.Transform:
    def by_window(hits: DataFrame) -> DataFrame:
        rows = hits.groupBy(*keys, F.window("time", width, slide)).agg(
            F.count("*").alias("hits"), F.sum(summed_column).alias("ids")
        )
        return rows.select("who", F.col("window.start").alias("since"), "hits", "ids")

    return by_window


@pytest.mark.parametrize(
    "changed",
    [
        counted(width="20 seconds"),
        counted(slide="5 seconds"),
        counted(keys=("who", "at")),
        counted(summed_column="at"),
    ],
)
def test_another_width_key_or_sum_is_another_state(
    session: SparkSession, changed: declarations.Transform
) -> None:
    tier = HOLDING.tier("by-window")
    assert state_operators(session, replace(tier, transform=changed)) != state_operators(session, tier)


def test_overlapping_windows_differ_by_their_width(session: SparkSession) -> None:
    tier = HOLDING.tier("by-window")
    descriptions = {
        state_operators(session, replace(tier, transform=counted(width=width, slide="5 seconds")))
        for width in ("10 seconds", "15 seconds")
    }
    assert len(descriptions) == 2


def test_operators_before_and_after_the_state_do_not_count(session: SparkSession) -> None:
    tier = HOLDING.tier("by-window")

    def by_window(hits: DataFrame) -> DataFrame:
        rows = counted()(hits.where("who <> 'nobody'"))
        return rows.withColumn("hits", F.col("hits") + 0)

    assert state_operators(session, replace(tier, transform=by_window)) == state_operators(session, tier)


class Counts(Sum):
    """Declares what `declare` says."""

    def __init__(self, declare: Callable[[Any], object]) -> None:
        """Take the declaration."""
        self._declare = declare

    def init(self, handle: Any) -> None:
        """Declare."""
        self._declare(handle)


def own(declare: Callable[[Any], object], mode: str = "None") -> declarations.Transform:
    def summed(hits: DataFrame) -> DataFrame:
        return hits.groupBy("who").transformWithState(
            Counts(declare), "who string, hits bigint, ids bigint", "Update", mode
        )

    return summed


def problems(before: TierShape, after: TierShape) -> list[str]:
    return incompatibilities(TierName("summed"), before, after, {})


SAME = own(lambda handle: handle.getValueState("sums", "hits long, ids long"))


@pytest.mark.parametrize(
    "changed",
    [
        own(lambda handle: handle.getValueState("sums", "hits bigint")),
        own(lambda handle: handle.getValueState("totals", "hits bigint, ids bigint")),
        own(lambda handle: handle.getListState("sums", "hits bigint, ids bigint")),
        own(lambda handle: handle.getMapState("sums", "hits bigint", "ids bigint")),
        own(lambda handle: handle.getValueState("sums", "hits bigint, ids bigint", 1000), "ProcessingTime"),
        own(lambda handle: handle.getValueState("sums", "hits bigint, ids bigint"), "EventTime"),
    ],
)
def test_other_variables_are_another_state(session: SparkSession, changed: declarations.Transform) -> None:
    tier = HOLDING.tier("summed")
    before, same, after = (
        shape(tier, state_operators(session, replace(tier, transform=transform)))
        for transform in (tier.transform, SAME, changed)
    )
    assert problems(before, same) == []
    (problem,) = problems(before, after)
    assert "the state of the new code holds" in problem
    assert "variable of step 1" in problem


def test_variables_that_are_unknown_refuse_nothing(session: SparkSession) -> None:
    tier = HOLDING.tier("summed")
    known = shape(tier, state_operators(session, tier))
    broken = own(lambda handle: 1 / len(handle.variables))
    unknown = shape(tier, state_operators(session, replace(tier, transform=broken)))
    assert unknown.state is not None
    assert len(unknown.state.operators) == 1
    assert problems(known, unknown) == problems(unknown, known) == []
