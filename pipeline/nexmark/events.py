"""The events of an auction house: persons who register, auctions that open, and bids. Pure.

Event `number` depends on the seed, the number and its time only, so a test knows all of them. Of 50
events, 1 is a person, 3 are auctions and 46 are bids.
"""

import random
from typing import Any

PERSONS, AUCTIONS, BIDS = 1, 3, 46
ROUND = PERSONS + AUCTIONS + BIDS
FIRST = 1000
"""The first id of a person, and of an auction."""
CATEGORIES = (10, 11, 12, 13, 14)
LONGEST_MS = 20_000
"""The longest time that an auction is open. Unit: milliseconds."""
ACTIVE_PERSONS, OPEN_AUCTIONS = 1000, 100
"""The number of newest persons who sell and bid, and of newest auctions that get bids."""
AHEAD = 10
"""A bid or an auction may name an auction or a person that comes up to this many ids later."""
HOT_EVERY = 100
"""Each hundredth person and auction is popular until the next one comes."""
CITIES = {
    "AZ": ("Phoenix",),
    "CA": ("Los Angeles", "San Francisco"),
    "ID": ("Boise",),
    "OR": ("Portland", "Bend"),
    "WA": ("Seattle", "Redmond"),
    "WY": ("Cheyenne",),
}
FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
CHANNELS = ("Apple", "Google", "Facebook", "Baidu")


def event(seed: int, number: int, at: int) -> dict[str, Any]:
    """Return event `number`, which happened `at` (epoch ms)."""
    generator = random.Random(f"{seed}/{number}")  # noqa: S311 — test data
    rounds, place = divmod(number, ROUND)
    newest_person = FIRST + rounds
    if place < PERSONS:
        return _person(generator, newest_person, at)
    newest_auction = FIRST + AUCTIONS * rounds + min(place - PERSONS, AUCTIONS - 1)
    if place < PERSONS + AUCTIONS:
        return _auction(generator, newest_auction, newest_person, at)
    return _bid(generator, newest_auction, newest_person, at)


def _person(generator: random.Random, number: int, at: int) -> dict[str, Any]:
    first, last = generator.choice(FIRST_NAMES), generator.choice(LAST_NAMES)
    state = generator.choice([*CITIES])
    return {
        "kind": "person",
        "id": number,
        "name": f"{first} {last}",
        "email": f"{first}.{last}@example.com".lower(),
        "city": generator.choice(CITIES[state]),
        "state": state,
        "at": at,
    }


def _auction(generator: random.Random, number: int, newest_person: int, at: int) -> dict[str, Any]:
    initial = _price(generator)
    return {
        "kind": "auction",
        "id": number,
        "item": f"item-{generator.randrange(10_000)}",
        "initial_bid": initial,
        "reserve": initial + _price(generator),
        "seller": _one_of(generator, newest_person, ACTIVE_PERSONS, hot=0.75),
        "category": generator.choice(CATEGORIES),
        "at": at,
        "expires": at + 1 + generator.randrange(LONGEST_MS),
    }


def _bid(generator: random.Random, newest_auction: int, newest_person: int, at: int) -> dict[str, Any]:
    channel = generator.choice(CHANNELS)
    return {
        "kind": "bid",
        "auction": _one_of(generator, newest_auction, OPEN_AUCTIONS, hot=0.5),
        "bidder": _one_of(generator, newest_person, ACTIVE_PERSONS, hot=0.75),
        "price": _price(generator),
        "channel": channel,
        "url": f"https://www.example.com/{channel.lower()}/item?id={generator.randrange(1 << 30)}",
        "at": at,
    }


def _one_of(generator: random.Random, newest: int, active: int, hot: float) -> int:
    """Return the popular id with the probability `hot`, or one of the active ids."""
    if generator.random() < hot:
        return newest - (newest - FIRST) % HOT_EVERY
    return generator.randint(max(FIRST, newest - active), newest + AHEAD)


def _price(generator: random.Random) -> int:
    """Return a price in cents: from 1 to 1,000,000 dollars, each power of ten as often."""
    return round(10 ** (generator.random() * 6) * 100)
