"""The routes of the page `Sluice` in Airflow.

The plugin mounts this app. The page is `control_room.js`, a component that Airflow's own page
loads; `plugins/control_room` has its sources. `content`, `details`, `actions` and
`logs` read what is shown.
"""

import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, NamedTuple

from fastapi import Depends, FastAPI, HTTPException, Query, Request
from fastapi.responses import Response, StreamingResponse
from pydantic import Field

from sluice_airflow.forms import RUNBOOKS, Pipeline, dag_id
from sluice_airflow.hooks.sluice import SluiceHook, shared_channel
from sluice_airflow.page.access import READER, User, connections, may_answer, may_read_log, may_trigger
from sluice_airflow.page.actions import actions
from sluice_airflow.page.content import PipelineReader
from sluice_airflow.page.details import (
    UnknownNameError,
    change_detail,
    host_detail,
    tier_detail,
    trail_detail,
)
from sluice_airflow.page.feed import AWAY, Feed, as_json, events
from sluice_airflow.page.logs import guarded_by, log_part
from sluice_ops.channel import Channel
from sluice_ops.model.ids import ChangeId
from sluice_ops.model.logs import MOST_LINES
from sluice_ops.model.resources import Frozen
from sluice_ops.operations import alerts
from sluice_ops.operations.approvals import AnswerError, answer
from sluice_ops.queries.logs import LogAwayError, UnknownLogError, find_log
from sluice_ops.snapshot.view import View

LINES = 500
"""How many lines of a log are shown, unless the query says otherwise."""
MOST_CHARACTERS = 1000
"""The longest reason of an answer, and the longest key of a silence."""
MOST_HOURS = 24
"""The longest silence from the page."""
BUNDLE = "control_room.js"


@asynccontextmanager
async def _lifespan(_app: FastAPI) -> AsyncIterator[None]:
    """Follow the pipeline of the API server's environment from the API server's start on."""
    feed_of(None).start()
    yield


app = FastAPI(
    title="Sluice",
    docs_url=None,
    redoc_url=None,
    openapi_url=None,
    dependencies=[READER],
    lifespan=_lifespan,
)


def _known(connection: str | None = None) -> str | None:
    """Return the connection of the query; 404 if Airflow has none of this id."""
    if connection is not None and connection not in connections():
        raise HTTPException(404, f"Airflow has no connection {connection!r} of the type Sluice")
    return connection


class Watched(NamedTuple):
    """A pipeline that the page shows."""

    reader: PipelineReader
    feed: Feed


@cache
def _watched(connection: str | None) -> Watched:
    reader = PipelineReader(connection)
    feed = Feed(reader)
    reader.on_change(feed.wake)
    return Watched(reader, feed)


def feed_of(connection: Annotated[str | None, Depends(_known)]) -> Feed:
    """Return the feed of a connection's pipeline; without one, of the API server's environment."""
    return _watched(connection).feed


def view_of(connection: Annotated[str | None, Depends(_known)]) -> View:
    """Return the snapshot of the pipeline, at most a second old while it can be read; 503 if it has
    never been read.
    """
    watched = _watched(connection)
    stale = json.loads(watched.feed.fresh()["stale"])
    if watched.reader.view is None:
        raise HTTPException(503, stale["sentence"])
    return watched.reader.view


def channel_of(connection: Annotated[str | None, Depends(_known)]) -> Channel:
    """Return the connection of the API server to a pipeline's channel; 503 if there is none."""
    try:
        return shared_channel(connection).get()
    except AWAY as error:
        raise HTTPException(503, str(error)) from error


def bundle() -> bytes:
    """Return the page's component as JavaScript."""
    return files("sluice_airflow.page").joinpath(BUNDLE).read_bytes()


@app.get(f"/{BUNDLE}")
def component() -> Response:
    """Return the component. Its address has its checksum, so browsers keep it."""
    headers = {"Cache-Control": "private, max-age=31536000, immutable"}
    return Response(bundle(), media_type="text/javascript", headers=headers)


@app.get("/state")
def state(feed: Annotated[Feed, Depends(feed_of)]) -> Response:
    """Return a pipeline's state as JSON; 503 if it has never been read.

    `stale` says since when and why it is no longer read; None: it is at most a second old.
    """
    sections = feed.fresh()
    return Response(as_json(sections), 200 if "at" in sections else 503, media_type="application/json")


@app.get("/events")
async def changes_of_state(request: Request, feed: Annotated[Feed, Depends(feed_of)]) -> StreamingResponse:
    """Return the state as server-sent events: first all sections, then those that changed."""
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(
        events(feed, request.is_disconnected), media_type="text/event-stream", headers=headers
    )


@app.get("/actions")
def permitted_actions(user: User, connection: Annotated[str | None, Depends(_known)]) -> list[dict[str, Any]]:
    """Return the runbooks that the user may trigger; a viewer gets none.

    The page triggers them through Airflow's REST API, which checks the user again.
    """
    try:
        known = actions(Pipeline.of(connection))
    except AWAY as error:
        raise HTTPException(503, str(error)) from error
    allowed = may_trigger(user, [action["dag_id"] for action in known])
    return [action for action in known if action["dag_id"] in allowed]


@app.get("/connections")
def connection_ids() -> list[str]:
    """Return the ids of Airflow's connections to pipelines."""
    return connections()


@app.get("/hosts/{name}")
def host(name: str, view: Annotated[View, Depends(view_of)]) -> dict[str, Any]:
    """Return the units of a host; 404 if there is no such host."""
    with _known_names():
        return host_detail(view, name)


@app.get("/tiers/{name}")
def tier(name: str, view: Annotated[View, Depends(view_of)]) -> dict[str, Any]:
    """Return the declaration and the incarnations of a tier; 404 if there is no such tier."""
    with _known_names():
        return tier_detail(view, name)


@app.get("/changes/{name}")
def change(
    name: str,
    user: User,
    connection: Annotated[str | None, Depends(_known)],
    view: Annotated[View, Depends(view_of)],
    channel: Annotated[Channel, Depends(channel_of)],
) -> dict[str, Any]:
    """Return the plan, the steps, the receipts and the trail of a change; 404 if there is none."""
    with _known_names():
        detail = change_detail(channel, view, name)
        detail |= trail_detail(channel, SluiceHook(connection), name)
    return detail | {"may_answer": may_answer(user, _runbook_of(view, name, connection))}


class AnswerForm(Frozen):
    """The answer of a person to a change that waits for approval."""

    approved: bool
    why: str = Field(default="", max_length=MOST_CHARACTERS)


@app.post("/changes/{name}/answer", status_code=204)
def answer_change(  # noqa: PLR0913, PLR0917 - the body, and what the route depends on
    name: str,
    form: AnswerForm,
    user: User,
    connection: Annotated[str | None, Depends(_known)],
    view: Annotated[View, Depends(view_of)],
    channel: Annotated[Channel, Depends(channel_of)],
) -> None:
    """Approve or refuse a waiting change, as `sluice approve` does, in the name of the user.

    403 unless the user may answer forms of the change's runbook in Airflow. 409 if the answer is
    not possible, such as that of the person who asked.
    """
    if not may_answer(user, _runbook_of(view, name, connection)):
        raise HTTPException(403, f"Airflow's roles do not let you answer change {name}")
    if not form.approved and not form.why.strip():
        raise HTTPException(422, "a refusal needs its reason, for the person who asked")
    try:
        answer(channel, name, f"airflow:{user.get_name()}", approved=form.approved, why=form.why.strip())
    except AnswerError as error:
        raise HTTPException(409, str(error)) from error
    except AWAY as error:
        raise HTTPException(503, str(error)) from error


class EndSilenceForm(Frozen):
    """The alerts of which the site is told again."""

    key: str = Field(min_length=1, max_length=MOST_CHARACTERS)


class SilenceForm(EndSilenceForm):
    """The alerts of which nothing is told, and for how long."""

    hours: float = Field(gt=0, le=MOST_HOURS)


@app.post("/alerts/silence", status_code=204)
def silence_alert(
    form: SilenceForm,
    user: User,
    connection: Annotated[str | None, Depends(_known)],
    channel: Annotated[Channel, Depends(channel_of)],
) -> None:
    """Silence alerts, as `sluice alert silence` does, in the name of the user.

    403 unless the user may trigger a runbook in Airflow.
    """
    with _acting(user, connection) as by:
        alerts.silence(channel, form.key, time.time() + form.hours * 3600, by)


@app.post("/alerts/unsilence", status_code=204)
def end_silence(
    form: EndSilenceForm,
    user: User,
    connection: Annotated[str | None, Depends(_known)],
    channel: Annotated[Channel, Depends(channel_of)],
) -> None:
    """End a silence, as `sluice alert unsilence` does, in the name of the user.

    403 unless the user may trigger a runbook in Airflow. 404 if there is no such silence.
    """
    with _acting(user, connection) as by:
        if not alerts.unsilence(channel, form.key, by):
            raise HTTPException(404, f"{form.key} is not silenced")


@contextmanager
def _acting(user: User, connection: str | None) -> Iterator[str]:
    """Return the author of a write of a user who may trigger a runbook; 403 for others."""
    if not permitted_actions(user, connection):
        message = "nothing is changed: silences need the right to start runbooks; ask an admin of Airflow"
        raise HTTPException(403, message)
    try:
        yield f"airflow:{user.get_name()}"
    except AWAY as error:
        raise HTTPException(503, str(error)) from error


def _runbook_of(view: View, change: str, connection: str | None) -> str | None:
    """Return the DAG of the kind of a change; None, all DAGs, if it has none or is not known."""
    record = view.changes.get(ChangeId(change))
    runbook = None if record is None else RUNBOOKS.get(record.spec.kind)
    return None if runbook is None else dag_id(runbook, connection)


@contextmanager
def _known_names() -> Iterator[None]:
    try:
        yield
    except UnknownNameError as error:
        raise HTTPException(404, str(error)) from error
    except AWAY as error:
        raise HTTPException(503, str(error)) from error


@app.get("/log")
def log(  # noqa: PLR0913, PLR0917 - the query, and what the route depends on
    name: str,
    user: User,
    connection: Annotated[str | None, Depends(_known)],
    view: Annotated[View, Depends(view_of)],
    channel: Annotated[Channel, Depends(channel_of)],
    lines: Annotated[int, Query(ge=1, le=MOST_LINES)] = LINES,
    after: Annotated[int | None, Query(ge=0)] = None,
) -> dict[str, Any]:
    """Return the end of a log as JSON; `name` is a name of `sluice logs`.

    With `after`, the position of an earlier answer, only what was written since. 403 unless the
    user may read the logs of the tasks of its tier in Airflow. 404 if there is no such log; 503
    while nobody can read it.
    """
    try:
        place = find_log(view, name)
        if not may_read_log(user, guarded_by(place, view, connection)):
            raise HTTPException(403, f"Airflow's roles do not let you read the log of {place.name}")
        return log_part(channel, view, place, lines, after)
    except UnknownLogError as error:
        raise HTTPException(404, str(error)) from error
    except LogAwayError as error:
        raise HTTPException(503, "\n".join((str(error), *error.lines))) from error
    except AWAY as error:
        raise HTTPException(503, str(error)) from error
