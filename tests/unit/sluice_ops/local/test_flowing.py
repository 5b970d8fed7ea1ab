"""A start waits for the tiers that should run, and names the reason if one does not run."""

import os
import threading
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sluice_ops.channel.client import Channel, ChannelAwayError
from sluice_ops.local import first_record
from sluice_ops.local.first_record import (
    Deadline,
    delivering_tiers,
    expected_tiers,
    missing_tiers,
    running_step,
)
from sluice_ops.local.layout import Layout
from sluice_ops.model import paths
from sluice_ops.model.ids import Incarnation, TierName
from sluice_ops.model.incarnation import IncarnationReport, OwnerRecord, State, TierWanted
from sluice_ops.model.release import Release, SinkShape, TierShape
from sluice_ops.model.tier import Delivery, Kind, Mode, TierSpec


class Value:
    """A value as the channel returns it."""

    def __init__(self, value: object) -> None:
        self.value = value


class Tree:
    """A channel that holds the nodes of a test."""

    def __init__(self, **tiers: dict[str, object]) -> None:
        self._tiers = list(tiers)
        self._nodes = {path: value for nodes in tiers.values() for path, value in nodes.items()}

    def children(self, _path: str) -> list[str]:
        return self._tiers

    def read(self, path: str, _kind: type) -> Value | None:
        return Value(self._nodes[path]) if path in self._nodes else None


def tree(**tiers: dict[str, object]) -> Channel:
    return cast("Channel", Tree(**tiers))


def tier(name: str, *, running: bool, **report: Any) -> dict[str, object]:
    nodes: dict[str, object] = {
        paths.wanted(name): TierWanted(running=running),
        paths.owner(name): OwnerRecord(owner=Incarnation(1)),
    }
    if report:
        nodes[paths.report(name, 1)] = IncarnationReport(since=0, pid=os.getpid(), **report)
    return nodes


def test_a_stopped_tier_is_neither_started_nor_waited_for() -> None:
    seen = tree(
        entry=tier("entry", running=True, state=State.RUNNING),
        buys=tier("buys", running=False, state=State.STOPPED),
    )
    assert expected_tiers(seen) == ["entry"]
    assert missing_tiers(seen) == []


def test_a_published_tier_without_a_request_is_started() -> None:
    assert expected_tiers(tree(entry={})) == ["entry"]
    assert missing_tiers(tree(entry={})) == ["entry: not started"]


@pytest.mark.parametrize(
    ("running", "sink", "tiers"),
    [(True, "Totals", ["out"]), (True, "Post", []), (True, "Post Once", ["out"]), (False, "Once", [])],
)
def test_a_start_waits_for_a_record_only_if_an_outbound_tier_delivers(
    *, running: bool, sink: str, tiers: list[str]
) -> None:
    spec = TierSpec(
        name=TierName("out"),
        kind=Kind.OUTBOUND,
        mode=Mode.BATCH,
        delivery=Delivery.EXACTLY_ONCE,
        inputs=("in",),
        release="r1-0",
    )
    first, *more = (SinkShape(kind=kind, name=kind.lower(), columns={}) for kind in sink.split())
    shape = TierShape(inputs=(), sink=first, more_sinks=tuple(more))
    release = Release(name="r1-0", module="shop", digest="0", published_at=0, tiers={TierName("out"): shape})
    nodes = tier("out", running=running) | {paths.tier("out"): spec, paths.release("r1-0"): release}
    assert delivering_tiers(tree(out=nodes)) == tiers


def test_a_failed_tier_is_reported_with_its_error() -> None:
    seen = tree(entry=tier("entry", running=True, state=State.FAILED, error="ValueError: no such table"))
    assert missing_tiers(seen) == ["entry: incarnation 1 is failed: ValueError: no such table"]


def test_a_site_without_tiers_is_reported() -> None:
    assert missing_tiers(tree()) == ["no tier is published"]


def test_a_tier_published_between_two_reads_does_not_count_as_running() -> None:
    reads = iter([[], ["entry"], ["entry"]])

    class Late(Tree):
        def children(self, _path: str) -> list[str]:
            return next(reads)

    late = Late()
    assert missing_tiers(cast("Channel", late)) == ["no tier is published"]
    assert missing_tiers(cast("Channel", late)) == ["entry: not started"]


def test_the_start_goes_on_after_zookeeper_was_away(monkeypatch: pytest.MonkeyPatch, layout: Layout) -> None:
    seen, begun = Tree(entry=tier("entry", running=True, state=State.RUNNING)), []

    def connect(_address: str) -> Any:
        begun.append(1)
        if len(begun) < 3:
            message = "ZooKeeper does not answer"
            raise ChannelAwayError(message)
        return nullcontext(seen)

    monkeypatch.setattr(first_record, "Channel", connect)
    monkeypatch.setattr(first_record, "known_endpoints", lambda _layout: SimpleNamespace(zookeeper=""))
    deadline = Deadline(60.0)
    deadline.begin()
    assert running_step(layout, deadline).act(threading.Event()) == "entry run"
    begun.clear()
    passed = Deadline(-1.0)
    passed.begin()
    with pytest.raises(first_record.PlatformError, match="ZooKeeper does not answer"):
        running_step(layout, passed).act(threading.Event())
