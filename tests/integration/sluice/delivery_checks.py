"""Checks of the shipped pipeline after a fault.

Each hit is delivered once, in order for each key, and by one owner at a time.
"""

from collections import defaultdict
from collections.abc import Iterable

from sluice.kafka.reader import Seen
from tests.integration.sluice.test_handover import LEDGER_GAPS
from tests.lab import Lab, until

DISORDER = """
    select count(*) from (
        select substring(id from 5)::bigint as number,
               lag(substring(id from 5)::bigint)
               over (partition by "user", campaign order by delivered_at, ctid) as before
        from delivered
    ) as hits where number < before
"""
"""Counts rows that were written after a later hit of the same user and campaign.

These hits share their path.
"""
BALANCE = (
    "select coalesce(sum(rows_in - rows_out - filtered - quarantined - replays - late - lost), 0) from ledger"
)
WRITES_AFTER_NEXT_OWNER = """
    select tier, batch from (
        select tier, batch, incarnation, max(incarnation) over (partition by tier order by batch) as newest
        from ledger
    ) as batches where incarnation < newest
"""
"""Batches that an incarnation wrote after a later incarnation, which owns the tier with a later
epoch.
"""


def delivered_once_in_order(lab: Lab, fed: set[str]) -> None:
    """Wait until all hits are delivered, and check them against the tables."""
    until(f"all {len(fed)} hits are delivered", lambda: lab.delivered()[1] >= len(fed))
    assert lab.delivered() == (len(fed), len(fed)), "no hit is delivered twice"
    assert {row[0] for row in lab.query("select id from delivered")} == fed
    assert lab.query(DISORDER) == [(0,)], "the hits of each user and campaign are in order"
    assert lab.query(BALANCE) == [(0,)], "the ledger balances"
    assert lab.query(LEDGER_GAPS) == [], "each batch begins where the one before ended"
    assert lab.query(WRITES_AFTER_NEXT_OWNER) == [], "no incarnation writes after a later owner"


def numbered(fed: int) -> set[str]:
    """Return the ids of a feed that started with number 1."""
    return {f"hit-{number}" for number in range(1, fed + 1)}


def is_output_in_order(seen: Iterable[Seen]) -> bool:
    """Tell whether a stream's records are in the order of the input, for each pair of input and
    output partition.

    Replayed records are ignored.
    """
    offsets_by_partitions: dict[tuple[str, str], dict[int, None]] = defaultdict(dict)
    for record in seen:
        offsets_by_partitions[record.place.rpartition(":")[0], record.out.partition].setdefault(
            record.out.offset
        )
    return all(list(offsets) == sorted(offsets) for offsets in offsets_by_partitions.values())
