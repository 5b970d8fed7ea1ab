"""The outbox: rows that a stream cannot get, and the numbers of its records."""

from sluice.api.sink import OutboxRecord
from sluice.sinks.outbox import MAX_BYTES, NUMBER, number_of, refused


def test_a_row_without_a_record_or_with_a_large_one_is_refused():
    of_rows = [
        OutboxRecord(0, b"k", b"{}"),
        OutboxRecord(0, None, None),
        OutboxRecord(0, b"k", b"x" * MAX_BYTES),
    ]
    assert refused(of_rows) == {
        1: "the row does not fit the format of the tier's stream",
        2: "larger than 1000000 bytes, the most that the tier's stream takes",
    }
    assert refused(()) == {}


def test_a_number_counts_only_for_its_own_database():
    def number(value, name=NUMBER):
        return number_of([("other", b"x"), (name, value)], "abc")

    assert number(b"abc:12") == 12
    assert [number(value) for value in (b"abd:12", b"abc:-1", b"abc:", b"12", b"\xff:12")] == [0] * 5
    assert number(b"abc:12", "origin") == number_of(None, "abc") == 0
