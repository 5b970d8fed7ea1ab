"""What is put again has the name that it had; places and times are read as people write them."""

from datetime import datetime

import pytest

from pipeline import origins
from pipeline.driver.streams import Bounds
from pipeline.replay.book import Replay, ReplayError, beyond
from pipeline.replay.player import headers
from pipeline.replay.span import moment, span


class Record:
    """As Kafka's client gives it."""

    def __init__(self, topic, partition, offset, **came):
        self._at = topic, partition, offset
        self._headers = [(key.rstrip("_"), value.encode()) for key, value in came.items()]

    def topic(self):
        return self._at[0]

    def partition(self):
        return self._at[1]

    def offset(self):
        return self._at[2]

    def headers(self):
        return self._headers or None


@pytest.mark.parametrize(
    ("record", "outside", "quarantined", "expected"),
    [
        (Record("raw", 2, 17), True, False, {"again": "2:17"}),
        (Record("raw", 2, 99, again="2:17", path="2/again"), True, False, {"again": "2:17", "path": "2/again"}),
        (Record("raw.quarantine", 2, 3, origin="2:17", path="2", from_="raw/2:17"), True, True, {"again": "2:17", "path": "2/again:2:17"}),
        (Record("raw", 2, 18, path="an outsider's"), True, False, {"again": "2:18"}),
        (
            Record("hits", 1, 5, origin="2:17", path="2", t0="7", from_="raw/2:17", by="entry/3"),
            False,
            False,
            {"origin": "2:17", "path": "2", "t0": "7", "from": "hits/1:5", "by": "replay/0"},
        ),
        (
            Record("hits.quarantine", 1, 5, origin="2:17", path="2/1", t0="7", from_="hits/1:4", by="enrich/3", reason="bad"),
            False,
            True,
            {"origin": "2:17", "path": "2/1/again:2:17", "t0": "7", "from": "hits.quarantine/1:5", "by": "replay/0"},
        ),
        (
            Record("back.quarantine", 0, 1, origin="2:17&back", path="2/back:1", from_="back/1:4", by="halve/1"),
            False,
            True,
            {"origin": "2:17", "path": "2/back:1/again:2:17&back", "from": "back.quarantine/0:1", "by": "replay/0"},
        ),
    ],
)
def test_a_record_keeps_its_name(record, outside, quarantined, expected):
    assert dict(headers(record, outside=outside, quarantined=quarantined)) == expected


@pytest.mark.parametrize("origin", ["2:17", "2:17:1", "2:17&other", "other/2:17", "2:17:0&other:3"])
def test_the_raw_record_of_an_origin(origin):
    assert origins.raw(origin) == "2:17"


def test_times_and_places():
    assert moment("2:1700") == (2, 1700)
    assert moment("2026-11-21T22:00+00:00") == 1795298400000
    assert moment("2026-11-21") == int(datetime(2026, 11, 21).astimezone().timestamp() * 1000)
    for wrong in ("yesterday", "2:", ":5", "22:00x"):
        with pytest.raises(ReplayError, match="neither a time"):
            moment(wrong)


class Topic:
    """Two partitions, each with offsets 10 to 20."""

    def bounds(self, topics):
        return Bounds({f"{topics[0]}/{each}": 10 for each in (0, 1)}, {f"{topics[0]}/{each}": 20 for each in (0, 1)})

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
def test_a_span_stays_within_what_there_is(begin, end, begins, ends):
    assert span(Topic(), "s", begin, end) == (begins, ends)


def test_wrong_spans_are_refused():
    with pytest.raises(ReplayError, match="s has no partition 7; it has 2, from 0 on"):
        span(Topic(), "s", "7:1", None)
    with pytest.raises(ReplayError, match="different partitions"):
        span(Topic(), "s", "0:1", "1:9")


def test_what_was_put_is_not_put_again_and_nothing_is_passed_over():
    assert beyond({"q/0": 0}, []) == {"q/0": 0}
    assert beyond({"q/0": 0}, [({"q/0": 0}, {"q/0": 5}), ({"q/0": 5}, {"q/0": 9})]) == {"q/0": 9}
    assert beyond({"q/0": 0, "q/1": 0}, [({"q/0": 6}, {"q/0": 9})]) == {"q/0": 0, "q/1": 0}
    assert beyond({"q/0": 0}, [({"q/0": 6}, {"q/0": 9}), ({"q/0": 0}, {"q/0": 6})]) == {"q/0": 9}


def test_what_is_left():
    replay = Replay(1, "raw", "raw", 10.0, {"raw/0": 0, "raw/1": 0}, {"raw/0": 5, "raw/1": 9}, {"raw/0": 8, "raw/1": 9})
    assert replay.open == {"raw/0": 5}
    assert replay.left == 3
