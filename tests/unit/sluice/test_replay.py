"""Requests to replay: the span of records, the records still to replay, and refusals."""

from contextlib import nullcontext
from datetime import datetime

import pytest

from hits import ENRICHED, PIPELINE
from sluice.api.declarations import Pipeline, State, Tier
from sluice.kafka.positions import OutputRecord
from sluice.kafka.reader import Bounds
from sluice.replay import live_records
from sluice.replay.book import Replay, ReplayError, deleted_records, moved_behind
from sluice.replay.live_records import LatencyWatch
from sluice.replay.pace import Pace
from sluice.replay.request import moment, refuse, span
from sluice.sinks.http import Post
from sluice.sinks.table import Latest
from sluice_ops.model.tier import Delivery, Kind


def test_a_begin_is_a_time_or_an_offset():
    assert moment("2:1700") == (None, 2, 1700)
    assert moment("hits/2:1700") == ("hits", 2, 1700)
    assert moment("2026-11-21T22:00+00:00") == 1795298400000
    assert moment("2026-11-21") == int(datetime(2026, 11, 21).astimezone().timestamp() * 1000)
    for text in ("yesterday", "2:", ":5", "22:00x"):
        with pytest.raises(ReplayError, match="neither a time"):
            moment(text)


class Topic:
    """A stream with two partitions, each with offsets 10 to 20."""

    def bounds(self, topics):
        partitions = [f"{topic}/{number}" for topic in topics for number in (0, 1)]
        return Bounds(dict.fromkeys(partitions, 10), dict.fromkeys(partitions, 20))

    def at(self, topics, _at, _ends):
        return {f"{topics[0]}/0": 15, f"{topics[0]}/1": 20}


@pytest.mark.parametrize(
    ("begin", "end", "begins", "ends"),
    [
        (None, None, {"s/0": 10, "s/1": 10}, {"s/0": 20, "s/1": 20}),
        ("1:12", None, {"s/1": 12}, {"s/1": 20}),
        ("1:3", "1:99", {"s/1": 10}, {"s/1": 20}),
        ("1:18", "1:12", {"s/1": 18}, {"s/1": 18}),
        ("2026-11-21", None, {"s/0": 15, "s/1": 20}, {"s/0": 20, "s/1": 20}),
        ("0:12", "2026-11-21", {"s/0": 12}, {"s/0": 15}),
    ],
)
def test_a_span_stays_within_the_existing_records(begin, end, begins, ends):
    assert span(Topic(), ["s"], begin, end) == (begins, ends)


def test_an_offset_names_its_stream_if_a_tier_has_several():
    assert span(Topic(), ["s", "t"], "t/1:12", None) == ({"t/1": 12}, {"t/1": 20})
    with pytest.raises(
        ReplayError, match='"1:12" names no stream; write s/1:12, for example; the streams are s, t'
    ):
        span(Topic(), ["s", "t"], "1:12", None)


def test_wrong_spans_are_refused():
    with pytest.raises(ReplayError, match="partition s/7 does not exist; the partitions are s/0, s/1"):
        span(Topic(), ["s"], "7:1", None)
    with pytest.raises(ReplayError, match="partition t/1 does not exist"):
        span(Topic(), ["s"], "t/1:1", None)
    with pytest.raises(ReplayError, match="different partitions"):
        span(Topic(), ["s"], "0:1", "1:9")


def test_finished_ranges_are_not_replayed_again_and_none_is_skipped():
    assert moved_behind({"q/0": 0}, []) == {"q/0": 0}
    assert moved_behind({"q/0": 0}, [({"q/0": 0}, {"q/0": 5}), ({"q/0": 5}, {"q/0": 9})]) == {"q/0": 9}
    assert moved_behind({"q/0": 0, "q/1": 0}, [({"q/0": 6}, {"q/0": 9})]) == {"q/0": 0, "q/1": 0}
    assert moved_behind({"q/0": 0}, [({"q/0": 6}, {"q/0": 9}), ({"q/0": 0}, {"q/0": 6})]) == {"q/0": 9}


def test_the_records_that_a_replay_has_still_to_process():
    replay = Replay(
        1, "entry", 10.0, {"raw/0": 0, "raw/1": 0}, {"raw/0": 5, "raw/1": 9}, {"raw/0": 8, "raw/1": 9}, 2
    )
    assert replay.open == {"raw/0": 5}
    assert replay.left == 3
    assert replay.at({"raw/0": 8, "raw/1": 9}).left == 0
    assert replay.source == "raw"
    assert not replay.quarantined
    assert OutputRecord(f"{replay.by}/2", "raw/0", 5, 0).tier not in {"entry", "replay"}, (
        "the records of a replay must not look like those of a tier's run"
    )


def test_expired_records_of_a_replay_are_named_with_the_next_step():
    replay = Replay(
        3, "entry", 10.0, {"raw/0": 0, "raw/1": 0}, {"raw/0": 5, "raw/1": 9}, {"raw/0": 8, "raw/1": 9}
    )
    assert deleted_records(replay, {"raw/0": 5, "raw/1": 20}) is None, (
        "records that were replayed before their expiry are not missing"
    )
    assert (
        "that replay 3 has not processed: raw/0 from 5 up to 7; "
        "end the replay with `sluice replay --cancel 3`"
        in str(deleted_records(replay, {"raw/0": 7, "raw/1": 0}))
    )
    assert "raw/0 from 5 up to 8;" in str(deleted_records(replay, {"raw/0": 20, "raw/1": 0}))


def test_a_watch_that_fails_reports_its_error(monkeypatch):
    monkeypatch.setattr(live_records, "LOOK_SECONDS", 0.01)

    def fail(_watch):
        return {}["raw/9"]

    monkeypatch.setattr(LatencyWatch, "_stream_waits", fail)
    pace = Pace(10.0)
    watch = LatencyWatch("127.0.0.1:1", "", PIPELINE, pace)
    watch.start()
    watch.join(timeout=5)
    assert isinstance(watch.failure, KeyError)


@pytest.mark.parametrize(
    ("name", "quarantine", "alternative"),
    [
        ("entry", False, None),
        ("entry", True, None),
        ("outbound", False, None),
        ("counts", True, None),
        ("counts", False, "to reprocess quarantined records: `sluice replay counts --quarantine`"),
        ("by-user", False, r"replay the tiers before it \(`sluice replay enrich`\)"),
        ("by-user", True, "keeps state"),
        ("shy", True, "delivers at most once"),
    ],
)
def test_an_impossible_replay_is_refused_with_an_alternative(name, quarantine, alternative):
    table = Latest("by_user", {"user": "text"}, key=("user",))
    holding = Tier("by-user", Kind.PROCESSING, (ENRICHED,), lambda hits: hits, sink=table, state=State(60))
    service = Post("shy", {"id": "text"}, url="http://127.0.0.1:1")
    shy = Tier(
        "shy",
        Kind.OUTBOUND,
        (ENRICHED,),
        lambda hits: hits,
        sink=service,
        delivery=Delivery.AT_MOST_ONCE,
        max_offsets=10,
    )
    pipeline = Pipeline((*PIPELINE.tiers, holding, shy))
    with nullcontext() if alternative is None else pytest.raises(ReplayError, match=alternative):
        refuse(pipeline, pipeline.tier(name), quarantine=quarantine)
