"""The newest entries of the trail, from PostgreSQL and from the channel's queue."""

from collections.abc import Callable

from sluice_ops.channel import Channel, ChannelAwayError, trail_queue
from sluice_ops.model.resources import Frozen
from sluice_ops.operations.connect import open_channel
from sluice_ops.queries.figures import away, connect
from sluice_ops.site.endpoints import Endpoints
from sluice_ops.site.installation import PlatformAwayError

QUERY = (
    "select role, name, extract(epoch from at)::float8 as at, by, layer, what, change, outcome, sentence"
    " from trail where (%(by)s::text is null or by = %(by)s)"
    " and (%(change)s::text is null or change = %(change)s) order by trail.at desc, name desc limit %(last)s"
)


class TrailLine(Frozen):
    """One entry."""

    role: str
    """The role whose credential wrote the entry."""
    name: str
    """The entry's name; unique within its role."""
    at: float
    by: str
    layer: str | None
    what: str
    change: str | None
    outcome: str
    sentence: str


def trail_history(last: int, by: str | None, change: str | None) -> tuple[list[TrailLine], str | None]:
    """Return the last entries, the newest last; then what may be missing, if ZooKeeper is away.

    `by` and `change` select entries. Raises PlatformAwayError if PostgreSQL is away.
    """
    queued: list[TrailLine] = []
    missing: str | None = None
    try:
        with open_channel() as channel:
            queued = _queued(channel)
    except ChannelAwayError as error:
        missing = f"{error}: requests of the last seconds may be missing here"
    stored = _stored(last, by, change)
    selected = [line for line in queued if by in {None, line.by} and change in {None, line.change}]
    return _merged(selected, stored)[-last:], missing


def trail_of_change(
    channel: Channel, endpoints: Callable[[], Endpoints], change: str
) -> tuple[list[TrailLine], str | None]:
    """Return the entries of a change, the newest last; then why older ones are missing, if
    PostgreSQL cannot be read.
    """
    queued = [line for line in _queued(channel) if line.change == change]
    try:
        return _merged(queued, _stored(None, None, change, endpoints())), None
    except (FileNotFoundError, PlatformAwayError) as error:
        return _merged(queued, []), str(error)


def _queued(channel: Channel) -> list[TrailLine]:
    """Read the entries of the queue.

    The queue is read before PostgreSQL: the audit moves entries from the one to the other, so an
    entry may be in both, but never in neither.
    """
    return [
        TrailLine(role=role, name=name, **entry.model_dump(mode="json"))
        for role, name, entry in trail_queue.queued(channel)
    ]


def _merged(queued: list[TrailLine], stored: list[TrailLine]) -> list[TrailLine]:
    lines = {(line.role, line.name): line for line in (*queued, *stored)}
    return sorted(lines.values(), key=lambda line: line.at)


def _stored(
    last: int | None, by: str | None, change: str | None, services: Endpoints | None = None
) -> list[TrailLine]:
    """Read the entries that the audit has moved to PostgreSQL."""
    import psycopg  # noqa: PLC0415

    try:
        with connect(services) as connection:
            rows = connection.execute(QUERY, {"last": last, "by": by, "change": change}).fetchall()
    except psycopg.errors.UndefinedTable:
        return []
    except psycopg.Error as error:
        raise PlatformAwayError(away(error)) from error
    return [TrailLine.model_validate(row) for row in rows]
