"""The page `Sluice` in Airflow's menu, and the page with the log of a driver.

The plugin mounts this app; `overview` and `driver_log` read the contents.
"""

from importlib.resources import files
from typing import Annotated, Any

from fastapi import FastAPI, Query
from fastapi.responses import HTMLResponse, JSONResponse

from sluice_airflow.hooks.sluice import SluiceHook, shared_channel
from sluice_airflow.page.access import READER, connections
from sluice_airflow.page.driver_log import UnknownDriverError, driver_log
from sluice_airflow.page.overview import overview
from sluice_ops.channel import ChannelAwayError, ConflictError

LINES, MOST_LINES = 500, 10_000
"""How many lines of a log are shown, unless the query says otherwise, and at most."""
AWAY = (ChannelAwayError, ConflictError, FileNotFoundError, ValueError)
"""ZooKeeper does not answer, or a connection or file does not name it."""

app = FastAPI(title="Sluice", docs_url=None, redoc_url=None, openapi_url=None, dependencies=[READER])


def _html(name: str) -> HTMLResponse:
    return HTMLResponse(files("sluice_airflow.page").joinpath(name).read_text())


@app.get("/")
def page() -> HTMLResponse:
    """Return the HTML page, which polls `/state` every few seconds."""
    return _html("page.html")


@app.get("/state")
def state(connection: str | None = None) -> JSONResponse:
    """Return a pipeline's content as JSON; 503 while ZooKeeper is away.

    Without a connection, the pipeline is the one of the API server's environment.
    """
    try:
        content: dict[str, Any] = overview(shared_channel(connection).get())
    except AWAY as error:
        return JSONResponse({"away": str(error)}, status_code=503)
    return JSONResponse(content)


@app.get("/connections")
def connection_ids() -> list[str]:
    """Return the ids of Airflow's connections to pipelines."""
    return connections()


@app.get("/log")
def log_page() -> HTMLResponse:
    """Return the HTML page of a driver's log, which polls `/log/lines` every few seconds."""
    return _html("log.html")


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
