"""The events of Nexmark: their proportions, and what they depend on."""

from collections import Counter

from nexmark.events import FIRST, LONGEST_MS, event


def test_an_event_depends_on_its_seed_number_and_time_only():
    assert event(1, 7, 1000) == event(1, 7, 2000) | {"at": 1000}
    assert event(1, 7, 1000) != event(2, 7, 1000)


def test_of_fifty_events_one_is_a_person_and_three_are_auctions():
    events = [event(1, number, number) for number in range(5000)]
    assert Counter(one["kind"] for one in events) == {"person": 100, "auction": 300, "bid": 4600}
    ids = {kind: [one["id"] for one in events if one["kind"] == kind] for kind in ("person", "auction")}
    assert ids == {"person": list(range(FIRST, FIRST + 100)), "auction": list(range(FIRST, FIRST + 300))}


def test_an_auction_ends_after_it_opens():
    auctions = [event(1, 50 * number + 1, 5000) for number in range(1000)]
    lengths = [auction["expires"] - auction["at"] for auction in auctions]
    assert 0 < min(lengths) < 100
    assert LONGEST_MS - 100 < max(lengths) <= LONGEST_MS
