"""The page `Sluice` in Airflow's menu.

The plugin mounts this app; `overview` reads the page's content.
"""

from importlib.resources import files
from typing import Any

from fastapi import FastAPI
from fastapi.responses import HTMLResponse, JSONResponse

from sluice_airflow.hooks.sluice import shared_channel
from sluice_airflow.page.access import READER, connections
from sluice_airflow.page.overview import overview
from sluice_ops.channel import ChannelAwayError, ConflictError

app = FastAPI(title="Sluice", docs_url=None, redoc_url=None, openapi_url=None, dependencies=[READER])


@app.get("/")
def page() -> HTMLResponse:
    """Return the HTML page, which polls `/state` every few seconds."""
    return HTMLResponse(files("sluice_airflow.page").joinpath("page.html").read_text())


@app.get("/state")
def state(connection: str | None = None) -> JSONResponse:
    """Return a pipeline's content as JSON; 503 while ZooKeeper is away.

    Without a connection, the pipeline is the one of the API server's environment.
    """
    try:
        content: dict[str, Any] = overview(shared_channel(connection).get())
    except (ChannelAwayError, ConflictError, FileNotFoundError, ValueError) as error:
        return JSONResponse({"away": str(error)}, status_code=503)
    return JSONResponse(content)


@app.get("/connections")
def connection_ids() -> list[str]:
    """Return the ids of Airflow's connections to pipelines."""
    return connections()
