"""From where to where a replay goes: places and times as people write them."""

from datetime import datetime

from pipeline.driver.streams import Streams, name
from pipeline.replay.book import ReplayError


def span(streams: Streams, source: str, begin: str | None, end: str | None) -> tuple[dict[str, int], dict[str, int]]:
    """Return from where to where a topic is read, by `topic/partition`; without a begin or an end, all that there is.

    A place names one partition, and only that one is read then.
    """
    known = streams.bounds([source])
    chosen = [_offsets(streams, source, known.ends, begin, known.oldest), _offsets(streams, source, known.ends, end, known.ends)]
    begins, ends = ({key: min(max(offset, known.oldest[key]), known.ends[key]) for key, offset in each.items()} for each in chosen)
    both = begins.keys() & ends.keys()
    if not both:
        message = "--from and --to name different partitions"
        raise ReplayError(message)
    return {key: begins[key] for key in both}, {key: max(ends[key], begins[key]) for key in both}


def _offsets(streams: Streams, source: str, ends: dict[str, int], text: str | None, default: dict[str, int]) -> dict[str, int]:
    if text is None:
        return default
    at = moment(text)
    if isinstance(at, int):
        return streams.at([source], at, ends)
    place = name(source, at[0])
    if place not in default:
        message = f"{source} has no partition {at[0]}; it has {len(default)}, from 0 on"
        raise ReplayError(message)
    return {place: at[1]}


def moment(text: str) -> int | tuple[int, int]:
    """Read a time (epoch ms; local where it names no zone) or a place, `partition:offset`."""
    first, _, second = text.partition(":")
    if first.isdigit() and second.isdigit():
        return int(first), int(second)
    try:
        return int(datetime.fromisoformat(text).astimezone().timestamp() * 1000)
    except ValueError:
        message = f'"{text}" is neither a time (2026-11-21T22:00) nor a place (partition:offset, as 2:1700)'
        raise ReplayError(message) from None
