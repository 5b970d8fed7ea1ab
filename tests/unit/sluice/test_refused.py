"""The search for rows that PostgreSQL refuses finds exactly these rows."""

import psycopg
from hypothesis import given
from hypothesis import strategies as st

from sluice.sinks.refused import find_refused


@given(st.integers(0, 60), st.sets(st.integers(0, 59)))
def test_refused_rows_are_found_and_all_others_are_written_once(count: int, bad: set[int]) -> None:
    taken: list[int] = []

    def write(rows: "range | list[int]") -> None:
        for row in rows:
            if row in bad:
                message = f"row {row}\nDETAIL: it is bad"
                raise psycopg.DataError(message)
        taken.extend(rows)

    assert find_refused(range(count), write) == {row: f"row {row}" for row in sorted(bad) if row < count}
    assert taken == [row for row in range(count) if row not in bad]


@given(st.lists(st.integers(1, 10)))
def test_rows_refused_only_together_are_written_as_far_as_possible(numbers: list[int]) -> None:
    """The rows' sum would be too large for its column."""
    most, total = 20, 0

    def write(rows: "range | list[int]") -> None:
        nonlocal total
        if total + sum(numbers[row] for row in rows) > most:
            message = "out of range"
            raise psycopg.DataError(message)
        total += sum(numbers[row] for row in rows)

    refused = find_refused(range(len(numbers)), write)
    assert total == sum(number for row, number in enumerate(numbers) if row not in refused) <= most
    assert all(total + numbers[row] > most for row in refused)
