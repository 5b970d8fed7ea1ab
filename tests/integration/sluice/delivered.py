"""What must hold of the shipped pipeline after any fault: each hit delivered once, in order for each key, by one owner at a time."""

from collections import defaultdict
from collections.abc import Iterable

from sluice.kafka.reader import Seen
from tests.integration.sluice.test_handover import HOLES
from tests.lab import Lab, until

DISORDER = """
    select count(*) from (
        select substring(id from 5)::bigint as number,
               lag(substring(id from 5)::bigint) over (partition by "user", campaign order by delivered_at, ctid) as before
        from delivered
    ) as each where number < before
"""
"""Rows that were written after a later one of the same user and campaign: these come the same way all along."""
BALANCE = (
    "select coalesce(sum(rows_in - rows_out - filtered - quarantined - replays - late - lost), 0) from ledger"
)
SHARED = """
    select tier, batch from (
        select tier, batch, incarnation, max(incarnation) over (partition by tier order by batch) as newest from ledger
    ) as each where incarnation < newest
"""
"""Batches that an incarnation wrote after a later one had written: the owner of a later epoch."""


def delivered_once_in_order(lab: Lab, fed: set[str]) -> None:
    """Wait until all hits that were fed are delivered, and hold them against what the tables say."""
    until(f"all of {len(fed)} hits are delivered", lambda: lab.delivered()[1] >= len(fed))
    assert lab.delivered() == (len(fed), len(fed)), "none is delivered twice"
    assert {row[0] for row in lab.query("select id from delivered")} == fed
    assert lab.query(DISORDER) == [(0,)], "the hits of each user and campaign are in order"
    assert lab.query(BALANCE) == [(0,)], "the ledger balances"
    assert lab.query(HOLES) == [], "each batch begins where the one before ended"
    assert lab.query(SHARED) == [], "nobody writes after a later owner"


def numbered(fed: int) -> set[str]:
    """Name the hits of a feed that began with number 1."""
    return {f"hit-{number}" for number in range(1, fed + 1)}


def put_out_in_order(seen: Iterable[Seen]) -> bool:
    """Tell whether the records of a stream came in the order of the input, by partition of either; those that came again are left out."""
    ways: dict[tuple[str, str], dict[int, None]] = defaultdict(dict)
    for each in seen:
        ways[each.place.rpartition(":")[0], each.out.partition].setdefault(each.out.offset)
    return all(list(way) == sorted(way) for way in ways.values())
