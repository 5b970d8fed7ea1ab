"""The rows that a query with a sink has collected, as the sink takes them."""

from collections import Counter

import pyarrow as pa

from sluice.api.sink import Rows
from sluice.records import lineage


class NamesakesError(Exception):
    """The transform made records that cannot be told from each other."""


def refuse_namesakes(good: pa.Table) -> None:
    """Refuse rows of a batch that were made of one record and have one name: all but the first
    would be dropped as replays.
    """
    named = list(
        zip(good.column(lineage.FROM).to_pylist(), good.column(lineage.ORIGIN).to_pylist(), strict=True)
    )
    if len(set(named)) == len(named):
        return
    (place, _), times = Counter(named).most_common(1)[0]
    message = (
        f"the transform made {times} records of {place}, and all but the first would be dropped as replays: a table that it joins has "
        f'to have each key once (dropDuplicates), or it has to return a column "{lineage.INDEX}" that counts them'
    )
    raise NamesakesError(message)


def sink_rows(good: pa.Table) -> tuple[Rows, list[int]]:
    """Return good rows as a sink takes them, and when each arrived in the pipeline (epoch ms)."""
    columns = {name: good.column(name).to_pylist() for name in good.column_names}
    origins, paths, arrived = (
        columns.pop(lineage.ORIGIN),
        columns.pop(lineage.PATH),
        columns.pop(lineage.ARRIVED),
    )
    del columns[lineage.FROM]
    return Rows(columns, origins, paths), arrived
