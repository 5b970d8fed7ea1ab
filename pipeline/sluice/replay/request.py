"""The request of a replay: whether the tier allows the replay, and from where to where it goes."""

import re
from collections.abc import Sequence
from datetime import datetime

from sluice.api.declarations import Pipeline, Tier
from sluice.kafka.reader import Streams, partition_name
from sluice.replay.book import ReplayError
from sluice.sinks.table import Once
from sluice_ops.model.tier import Delivery

PLACE = re.compile(r"(?:(?P<topic>.+)/)?(?P<partition>\d+):(?P<offset>\d+)")


def refuse(pipeline: Pipeline, tier: Tier, *, quarantine: bool) -> None:
    """Raise ReplayError if a replay would count records twice, or would have no effect. Pure."""
    subject = f'tier "{tier.name}"'
    inputs = {stream.name for stream in tier.inputs}
    before = [
        f"`sluice replay {other.name}`"
        for other in pipeline.tiers
        if inputs & {stream.name for stream in other.outputs}
    ]
    if tier.state is not None:
        way = (
            f"replay the tiers before it ({', '.join(before)})"
            if before
            else "send the records to its input again"
        )
        message = (
            f"{subject} keeps state, which only its own query may change; {way}: "
            "the tier takes the records that it lacks, unless they are late by then"
        )
    elif tier.delivery is Delivery.AT_MOST_ONCE:
        message = (
            f"{subject} delivers at most once, and never sends again what may have been sent; "
            "`sluice audit` shows what may be lost"
        )
    elif (by_marks := [sink.name for sink in tier.sinks if not isinstance(sink, Once)]) and not quarantine:
        message = (
            f"{subject} recognises replays by marks and would drop all these records; "
            f"repair {' and '.join(by_marks)} by hand (`sluice audit` names the missing records); "
            f"to reprocess quarantined records: `sluice replay {tier.name} --quarantine`"
        )
    else:
        return
    raise ReplayError(message)


def span(
    streams: Streams, topics: Sequence[str], begin: str | None, end: str | None
) -> tuple[dict[str, int], dict[str, int]]:
    """Return the first offset and the end of each `topic/partition` to read.

    `begin` and `end` are times or places as an operator writes them; None means the oldest, or the
    newest, record. A place names one partition, and limits the span to this partition. Raise
    ReplayError for an unknown place or time.
    """
    known = streams.bounds(topics)
    limits = [
        _offsets(streams, topics, known.ends, begin, known.oldest),
        _offsets(streams, topics, known.ends, end, known.ends),
    ]
    begins, ends = (
        {key: min(max(offset, known.oldest[key]), known.ends[key]) for key, offset in offsets.items()}
        for offsets in limits
    )
    common = begins.keys() & ends.keys()
    if not common:
        message = "--from and --to name different partitions; name the same partition in both"
        raise ReplayError(message)
    return {key: begins[key] for key in common}, {key: max(ends[key], begins[key]) for key in common}


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
        message = (
            f'"{text}" names no stream; write {topics[0]}/{text}, for example; '
            f"the streams are {', '.join(topics)}"
        )
        raise ReplayError(message)
    place = partition_name(topic or topics[0], partition)
    if place not in default:
        message = f"partition {place} does not exist; the partitions are {', '.join(sorted(default))}"
        raise ReplayError(message)
    return {place: offset}


def moment(text: str) -> int | tuple[str | None, int, int]:
    """Parse a time or a place: return epoch ms, or (stream or None, partition, offset).

    A place is `[stream/]partition:offset`. A time without a zone is local time.
    """
    if place := PLACE.fullmatch(text):
        return place["topic"], int(place["partition"]), int(place["offset"])
    try:
        return int(datetime.fromisoformat(text).astimezone().timestamp() * 1000)
    except ValueError:
        message = (
            f'"{text}" is neither a time (2026-11-21T22:00) nor a place '
            "(partition:offset, such as 2:1700 or hits/2:1700)"
        )
        raise ReplayError(message) from None
