"""The templates of hits and of Nexmark's events."""

from hits.feed import hit
from nexmark.events import AUCTIONS, PERSONS, ROUND, event
from tests.bench.records import Amount, Template, template

SIZE = 5_000
"""How many different hits and events there are; later ones repeat them with other ids.

These are a hundred rounds of Nexmark's events: popular persons and auctions change every hundred
ids.
"""
FIRST_EVENT = 1_000_000
"""The number of the first template's event: a thousand persons are registered by then."""
NOW = Amount(0, timed=1)
PERSONS_EACH_TURN, AUCTIONS_EACH_TURN = SIZE // ROUND * PERSONS, SIZE // ROUND * AUCTIONS
EACH_TURN = {
    "person": {"id": PERSONS_EACH_TURN},
    "auction": {"id": AUCTIONS_EACH_TURN, "seller": PERSONS_EACH_TURN},
    "bid": {"auction": AUCTIONS_EACH_TURN, "bidder": PERSONS_EACH_TURN},
}
"""Kind of event → its ids, and how much they grow from one use of a template to the next."""


def hits() -> list[Template]:
    return [
        template({**hit(place, 0), "id": "hit-"}, {"id": Amount(place, SIZE), "at": NOW})
        for place in range(SIZE)
    ]


def events() -> list[Template]:
    return [_event(event(1, FIRST_EVENT + place, 0)) for place in range(SIZE)]


def _event(one: dict[str, object]) -> Template:
    ids = {name: Amount(int(str(one[name])), growth) for name, growth in EACH_TURN[str(one["kind"])].items()}
    times = {"at": NOW}
    if "expires" in one:
        times["expires"] = Amount(int(str(one["expires"])), timed=1)
    return template(one, {**ids, **times})


def is_bid(number: int) -> bool:
    """Tell whether event `number` of the templates is a bid."""
    return number % ROUND >= PERSONS + AUCTIONS
