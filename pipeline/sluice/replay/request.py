"""From where to where a replay goes: places and times as people write them."""

import re
from collections.abc import Sequence
from datetime import datetime

from sluice.kafka.reader import Streams, name
from sluice.replay.book import ReplayError

PLACE = re.compile(r"(?:(?P<topic>.+)/)?(?P<partition>\d+):(?P<offset>\d+)")


def span(
    streams: Streams, topics: Sequence[str], begin: str | None, end: str | None
) -> tuple[dict[str, int], dict[str, int]]:
    """Return from where to where topics are read, by `topic/partition`; without a begin or an end, all that there is.

    A place names one partition, and only that one is read then.
    """
    known = streams.bounds(topics)
    chosen = [
        _offsets(streams, topics, known.ends, begin, known.oldest),
        _offsets(streams, topics, known.ends, end, known.ends),
    ]
    begins, ends = (
        {key: min(max(offset, known.oldest[key]), known.ends[key]) for key, offset in each.items()}
        for each in chosen
    )
    both = begins.keys() & ends.keys()
    if not both:
        message = "--from and --to name different partitions"
        raise ReplayError(message)
    return {key: begins[key] for key in both}, {key: max(ends[key], begins[key]) for key in both}


def _offsets(
    streams: Streams, topics: Sequence[str], ends: dict[str, int], text: str | None, default: dict[str, int]
) -> dict[str, int]:
    if text is None:
        return default
    at = moment(text)
    if isinstance(at, int):
        return streams.at(topics, at, ends)
    topic, partition, offset = at
    if topic is None and len(topics) > 1:
        message = f'"{text}": say of which stream, as {topics[0]}/{text}; there are {", ".join(topics)}'
        raise ReplayError(message)
    place = name(topic or topics[0], partition)
    if place not in default:
        message = f"there is no partition {place}; there are {', '.join(sorted(default))}"
        raise ReplayError(message)
    return {place: offset}


def moment(text: str) -> int | tuple[str | None, int, int]:
    """Read a time (epoch ms; local where it names no zone) or a place, `[stream/]partition:offset`."""
    if place := PLACE.fullmatch(text):
        return place["topic"], int(place["partition"]), int(place["offset"])
    try:
        return int(datetime.fromisoformat(text).astimezone().timestamp() * 1000)
    except ValueError:
        message = f'"{text}" is neither a time (2026-11-21T22:00) nor a place (partition:offset, as 2:1700 or hits/2:1700)'
        raise ReplayError(message) from None
