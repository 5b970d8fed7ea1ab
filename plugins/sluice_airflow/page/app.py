"""The routes of the page `Sluice` in Airflow, and the page with the log of a driver.

The plugin mounts this app. The page is `control_room.js`, a component that Airflow's own page
loads; `plugins/control_room` has its sources. `content`, `actions` and `driver_log` read what is
shown.
"""

from functools import cache
from importlib.resources import files
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response, StreamingResponse

from sluice_airflow.forms import Pipeline
from sluice_airflow.hooks.sluice import SluiceHook, shared_channel
from sluice_airflow.page.access import READER, User, connections, may_trigger
from sluice_airflow.page.actions import actions
from sluice_airflow.page.content import PipelineReader
from sluice_airflow.page.driver_log import UnknownDriverError, driver_log
from sluice_airflow.page.feed import AWAY, Feed, as_json, events

LINES, MOST_LINES = 500, 10_000
"""How many lines of a log are shown, unless the query says otherwise, and at most."""
BUNDLE = "control_room.js"

app = FastAPI(title="Sluice", docs_url=None, redoc_url=None, openapi_url=None, dependencies=[READER])


def _known(connection: str | None = None) -> str | None:
    """Return the connection of the query; 404 if Airflow has none of this id."""
    if connection is not None and connection not in connections():
        raise HTTPException(404, f"Airflow has no connection {connection!r} of the type Sluice")
    return connection


@cache
def _feed(connection: str | None) -> Feed:
    reader = PipelineReader(connection)
    feed = Feed(reader)
    reader.on_change(feed.wake)
    return feed


def feed_of(connection: Annotated[str | None, Depends(_known)]) -> Feed:
    """Return the feed of a connection's pipeline; without one, of the API server's environment."""
    return _feed(connection)


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


@app.get("/log")
def log_page() -> HTMLResponse:
    """Return the HTML page of a driver's log, which polls `/log/lines` every few seconds."""
    return HTMLResponse(files("sluice_airflow.page").joinpath("log.html").read_text())


@app.get("/log/lines")
def log_lines(
    tier: str,
    incarnation: int | None = None,
    connection: str | None = None,
    lines: Annotated[int, Query(ge=1, le=MOST_LINES)] = LINES,
) -> JSONResponse:
    """Return the end of a driver's log as JSON; 404 if the tier has no such driver.

    If the log is on another machine, the sentence names the host and the command. 503 while
    ZooKeeper is away.
    """
    try:
        channel, home = shared_channel(connection).get(), SluiceHook(connection).home
        content = driver_log(channel, home, tier, incarnation, lines)
    except UnknownDriverError as error:
        return JSONResponse({"sentence": str(error)}, status_code=404)
    except AWAY as error:
        return JSONResponse({"sentence": str(error)}, status_code=503)
    return JSONResponse(content)
