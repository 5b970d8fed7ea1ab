"""A realtime tier never starts after a record that was not put out, whatever was lost on the way."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.driver.positions import GIVE_UP_MS, SETTLED_MS, GoneError, PutOut, known, refuse_shorter, settled, start, unbroken

P = "raw/0"
END = 1_000


@dataclass(frozen=True)
class Sent:
    """A record that a run has sent: when, and when it was in the output, if ever."""

    by: str
    offset: int
    at: int
    visible: int | None


@st.composite
def histories(draw):
    """Runs after (and beside) one another, each of which sends in order until a loss stops it or it is killed."""
    sent: list[Sent] = []
    started: list[dict[str, int]] = []
    checks = []
    now = 0
    for number in range(draw(st.integers(1, 4))):
        seen = [PutOut(record.by, P, record.offset, record.at) for record in sent if record.visible is not None and record.visible <= now]
        begins = start({P: 0}, {P: END}, started, seen)
        begin = (unbroken(begins, {P: END}, seen) if draw(st.booleans()) else begins)[P]
        checks.append((begin, {record.offset for record in seen}))
        started.append({P: begin})
        at, lost_at = now, None
        for offset in range(begin, begin + draw(st.integers(0, 30))):
            at += draw(st.sampled_from([0, 1, 50, 900, 4_000, 9_500, 20_000]))
            if lost_at is not None and at > lost_at + GIVE_UP_MS:
                break
            lost = draw(st.integers(0, 9)) == 0
            lost_at = at if lost and lost_at is None else lost_at
            visible = None if lost else at + draw(st.sampled_from([0, 5, 2_000, GIVE_UP_MS]))
            sent.append(Sent(f"entry/{number}", offset, at, visible))
        now += draw(st.integers(0, max(1, at - now + 15_000)))
    return checks


@given(histories())
def test_everything_before_the_start_was_put_out(checks):
    done: set[int] = set()
    for begin, seen in checks:
        done |= seen
        assert set(range(begin)) <= done


def test_what_is_out_without_a_break_is_not_done_again_and_nothing_beyond_the_input_is_believed():
    tail = [PutOut("entry/1", P, offset, 0) for offset in (3, 4, 5, 7)]
    assert unbroken({P: 3, "raw/1": 9}, {P: END, "raw/1": END}, tail) == {P: 6, "raw/1": 9}
    assert unbroken({P: 4}, {P: 5}, tail) == {P: 5}


def test_a_steady_run_is_continued_from_where_its_output_had_settled():
    tail = [PutOut("entry/1", P, offset, offset * 100) for offset in range(500)]
    begin = start({P: 0}, {P: END}, [{P: 0}], tail)[P]
    assert 500 - SETTLED_MS / 100 - 2 <= begin <= 500 - SETTLED_MS / 100


def test_a_partition_that_shows_nothing_starts_where_the_last_run_started():
    assert start({P: 0, "raw/1": 0}, {P: END, "raw/1": END}, [{P: 70, "raw/1": 40}, {P: 80, "raw/1": 90}], []) == {P: 80, "raw/1": 90}


def test_the_very_first_run_starts_with_the_oldest_record():
    assert start({P: 17}, {P: END}, [], []) == {P: 17}


def test_a_restart_in_place_counts_as_a_run_of_its_own():
    """The first run lost 103 and put out 105; the second one must not make 105 look settled."""
    tail = [PutOut("entry/1", P, 105, 0), *(PutOut("entry/1.1", P, offset, 60_000 + offset) for offset in (100, 101))]
    assert settled(tail) == {}


def test_records_that_are_gone_are_said_loudly():
    with pytest.raises(GoneError, match=r"raw/0: offsets 5 to 9 were never processed.*retention"):
        start({P: 10}, {P: 20}, [{P: 5}], [])


def test_an_input_that_is_shorter_than_what_was_read_of_it_is_refused():
    tail = [PutOut("entry/1", P, 40, 0), PutOut("entry/1", P, 50, SETTLED_MS + 1)]
    done = known([{P: 7, "raw/1": 9}], tail)
    assert done == {P: 41, "raw/1": 9}
    refuse_shorter(done, {P: 41, "raw/1": 12, "raw/2": 0}, "")
    with pytest.raises(GoneError, match=r"raw/0 ends at 40, and was read up to 41: .*; call somebody"):
        refuse_shorter(done, {P: 40, "raw/1": 12}, "call somebody")
