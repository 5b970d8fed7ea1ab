"""Nexmark: the queries q0 to q8, q11 and q12 on the events of an auction house.

One tier parses the events, and one tier answers each query. The page "Nexmark" of the documentation
explains three of them.
"""

from nexmark.auctions import Q4, Q6, q4, q6
from nexmark.bids import Q0, Q1, Q2, q0, q1, q2
from nexmark.entry import routed
from nexmark.joins import Q3, Q8, q3, q8
from nexmark.windows import Q5, Q7, Q11, Q12, q5, q7, q11, q12
from sluice import Delivery, Kind, Latest, Mode, Once, Pipeline, Quantum, State, Stream, Tier, Transform

RAW = Stream("raw")
PERSONS = Stream("persons", "id bigint, name string, email string, city string, state string, at bigint")
AUCTIONS = Stream(
    "auctions",
    "id bigint, item string, initial_bid bigint, reserve bigint, seller bigint, category int, at bigint,"
    " expires bigint",
)
BIDS = Stream("bids", "auction bigint, bidder bigint, price bigint, channel string, url string, at bigint")

SLOT = Quantum(cpu=1, memory=750, threads=4)
DRIVER = Quantum(cpu=0.5, memory=800, threads=1)

STATE_SLOT = Quantum(cpu=1, memory=950, threads=4)
"""A slot of a tier with state: RocksDB and Python need more memory."""
LATENESS = 30
"""How late an event may arrive. Unit: seconds."""


def of_each_bid(name: str, query: Transform, table: Once, *, filters: bool = False) -> Tier:
    """Return the tier of a query that looks at one bid at a time."""
    return Tier(
        name,
        Kind.OUTBOUND,
        (BIDS,),
        query,
        sink=table,
        delivery=Delivery.EXACTLY_ONCE,
        filters=filters,
        quantum=SLOT,
        driver=DRIVER,
    )


def of_many(  # noqa: PLR0913 — as a tier
    name: str,
    query: Transform,
    inputs: tuple[Stream, ...],
    table: Latest,
    *,
    filters: bool = False,
    time: str | None = "at",
) -> Tier:
    """Return the tier of a query with state."""
    return Tier(
        name,
        Kind.PROCESSING,
        inputs,
        query,
        sink=table,
        state=State(LATENESS, time=time),
        delivery=Delivery.EXACTLY_ONCE,
        filters=filters,
        quantum=STATE_SLOT,
        driver=DRIVER,
    )


PIPELINE = Pipeline(
    (
        Tier(
            "entry",
            Kind.ENTRY,
            (RAW,),
            routed,
            outputs=(PERSONS, AUCTIONS, BIDS),
            mode=Mode.REALTIME,
            quantum=SLOT,
            driver=DRIVER,
        ),
        of_each_bid("q0", q0, Q0),
        of_each_bid("q1", q1, Q1),
        of_each_bid("q2", q2, Q2, filters=True),
        of_many("q3", q3, (PERSONS, AUCTIONS), Q3, filters=True),
        of_many("q4", q4, (AUCTIONS, BIDS), Q4),
        of_many("q5", q5, (BIDS,), Q5),
        of_many("q6", q6, (AUCTIONS, BIDS), Q6),
        of_many("q7", q7, (BIDS,), Q7),
        of_many("q8", q8, (PERSONS, AUCTIONS), Q8, filters=True),
        of_many("q11", q11, (BIDS,), Q11),
        of_many("q12", q12, (BIDS,), Q12, time=None),
    )
)
