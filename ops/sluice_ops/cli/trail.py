"""`sluice trail`: who asked for what, when, from which layer, and what became of it."""

import time

import typer

from sluice_ops.channel import ChannelAwayError, trail_queue
from sluice_ops.cli.output import print_json, print_table
from sluice_ops.model.access import Role
from sluice_ops.model.resources import Frozen
from sluice_ops.operations.connect import open_channel
from sluice_ops.queries.figures import away
from sluice_ops.site import endpoints
from sluice_ops.site.installation import PlatformAwayError

CONNECT_SECONDS = 2
QUERY = (
    "select role, name, extract(epoch from at)::float8, by, layer, what, change, outcome, sentence from trail"
    " where (%(by)s is null or by = %(by)s) and (%(change)s is null or change = %(change)s) order by at desc, name desc limit %(last)s"
)


class TrailLine(Frozen):
    """One entry."""

    role: str
    """Whose credential wrote it."""
    name: str
    """Which of that role's it is."""
    at: float
    by: str
    layer: str | None
    what: str
    change: str | None
    outcome: str
    sentence: str


def show(last: int, by: str | None, change: str | None, *, as_json: bool) -> None:
    """Print the newest entries, the newest last."""
    found = {
        (line.role, line.name): line for line in (*_waiting(by, change), *_kept(last, by, change))
    }  # one that is being moved is in both
    lines = sorted(found.values(), key=lambda line: line.at)[-last:]
    if as_json:
        print_json(lines)
        return
    print_table(
        ("when", "who", "layer", "what", "outcome", "change", "why"),
        (
            (
                time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(line.at)),
                line.by,
                line.layer,
                line.what,
                line.outcome,
                line.change,
                line.sentence,
            )
            for line in lines
        ),
        "Nobody has changed anything yet." if by is None and change is None else "There is no such entry.",
    )


def _kept(last: int, by: str | None, change: str | None) -> list[TrailLine]:
    """Read what the audit has moved to PostgreSQL."""
    import psycopg2  # type: ignore[import-untyped]  # noqa: PLC0415

    try:
        with (
            psycopg2.connect(
                endpoints.load().postgres_as(Role.OPERATOR), connect_timeout=CONNECT_SECONDS
            ) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(QUERY, {"last": last, "by": by, "change": change})
            return [
                TrailLine(**dict(zip(TrailLine.model_fields, row, strict=True))) for row in cursor.fetchall()
            ]
    except psycopg2.errors.UndefinedTable:
        return []
    except psycopg2.Error as error:
        raise PlatformAwayError(away(error)) from error


def _waiting(by: str | None, change: str | None) -> list[TrailLine]:
    """Read what is still in the channel."""
    try:
        with open_channel() as channel:
            found = [
                TrailLine(role=role, name=name, **entry.model_dump(mode="json"))
                for role, name, entry in trail_queue.waiting(channel)
            ]
    except ChannelAwayError as error:
        typer.echo(f"{error}: what was asked for in the last seconds may be missing here.", err=True)
        return []
    return [line for line in found if by in {None, line.by} and change in {None, line.change}]
