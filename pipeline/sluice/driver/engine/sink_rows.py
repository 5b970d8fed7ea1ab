"""Brings the rows that a query collected into the form that a sink takes."""

from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sluice.api.sink import Rows
from sluice.records import lineage


class NamesakesError(Exception):
    """The transform made several records with one name."""


def refuse_namesakes(good: pa.Table) -> None:
    """Raise NamesakesError if rows of one record have one name.

    Those after the first would be dropped as replays.
    """
    if pc.count_distinct(good.column(lineage.FROM), mode="all").as_py() == len(good):
        return  # a row of each record; what follows would take Python 0.7 µs a row
    names = list(
        zip(good.column(lineage.FROM).to_pylist(), good.column(lineage.ORIGIN).to_pylist(), strict=True)
    )
    if len(set(names)) == len(names):
        return
    (place, _), times = Counter(names).most_common(1)[0]
    message = (
        f"the transform made {times} records of {place}, and all but the first would be dropped as "
        f"replays: a table that it joins must have each key once (dropDuplicates), or the transform must "
        f'return a column "{lineage.INDEX}" that counts the records'
    )
    raise NamesakesError(message)


def sink_rows(good: pa.Table) -> tuple[Rows, list[int]]:
    """Return good rows in the form that a sink takes, and when each arrived in the pipeline (epoch
    ms).
    """
    columns: dict[str, Any] = {name: _values(good.column(name)) for name in good.column_names}
    origins, paths, arrived = (
        columns.pop(lineage.ORIGIN),
        columns.pop(lineage.PATH),
        columns.pop(lineage.ARRIVED),
    )
    del columns[lineage.FROM]
    return Rows(columns, origins, paths), arrived


def _values(column: pa.ChunkedArray) -> list[Any]:
    """Return the values. Equal times are made once: one takes Python 2 µs."""
    if not pa.types.is_timestamp(column.type):
        return list(column.to_pylist())
    encoded = column.combine_chunks().dictionary_encode()
    times = [*encoded.dictionary.to_pylist(), None]
    return [times[number] for number in encoded.indices.fill_null(-1).to_pylist()]
