"""The newest entries of the trail, from PostgreSQL and from the channel's queue."""

from sluice_ops.channel import ChannelAwayError, trail_queue
from sluice_ops.model.resources import Frozen
from sluice_ops.operations.connect import open_channel
from sluice_ops.queries.figures import away, connect
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
            queued = [
                TrailLine(role=role, name=name, **entry.model_dump(mode="json"))
                for role, name, entry in trail_queue.queued(channel)
            ]
    except ChannelAwayError as error:
        missing = f"{error}: requests of the last seconds may be missing here"
    # the queue is read first: the audit moves entries from the queue to PostgreSQL, so an entry may
    # be in both, but never in neither
    stored = _stored(last, by, change)
    selected = [line for line in queued if by in {None, line.by} and change in {None, line.change}]
    lines = {(line.role, line.name): line for line in (*selected, *stored)}
    return sorted(lines.values(), key=lambda line: line.at)[-last:], missing


def _stored(last: int, by: str | None, change: str | None) -> list[TrailLine]:
    """Read the entries that the audit has moved to PostgreSQL."""
    import psycopg  # noqa: PLC0415

    try:
        with connect() as connection:
            rows = connection.execute(QUERY, {"last": last, "by": by, "change": change}).fetchall()
    except psycopg.errors.UndefinedTable:
        return []
    except psycopg.Error as error:
        raise PlatformAwayError(away(error)) from error
    return [TrailLine.model_validate(row) for row in rows]
