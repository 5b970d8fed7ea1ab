"""Where the services are: one file, written by the embedded platform or by the site, read by every process.

`SLUICE_ENDPOINTS` names it; without that it is `endpoints.json` in `SLUICE_HOME`.
"""

import os
from pathlib import Path

from pydantic import ValidationError

from ops.model.resources import Frozen


class EndpointsError(Exception):
    """The endpoints file cannot be used; the message says which key and why."""


class AirflowEndpoint(Frozen):
    """Airflow's API server."""

    url: str
    user: str
    password: str


class Endpoints(Frozen):
    """Addresses of everything that Sluice talks to."""

    kafka: str
    """`host:port`, several with commas."""
    zookeeper: str
    """`host:port/chroot`."""
    postgres: str
    """A libpq URL with the password in it."""
    airflow: AirflowEndpoint
    spark: str
    """`spark://host:port`."""
    ec2: str | None = None
    """The EC2 endpoint; None for the cloud's own."""
    home: Path
    """A folder that all hosts share: checkpoints and the archive are below it."""


def home() -> Path:
    """Where everything of this installation lives."""
    return Path(os.environ.get("SLUICE_HOME", ".sluice")).resolve()


def file() -> Path:
    """Where the endpoints file is."""
    return Path(os.environ.get("SLUICE_ENDPOINTS", home() / "endpoints.json")).resolve()


def load() -> Endpoints:
    """Read the endpoints file; FileNotFoundError says what to do."""
    path = file()
    if not path.exists():
        message = f"{path} does not exist: start the platform with `make up`, or name the site's file in SLUICE_ENDPOINTS"
        raise FileNotFoundError(message)
    try:
        return Endpoints.model_validate_json(path.read_text())
    except ValidationError as error:
        lines = [f"{path}: {'.'.join(str(part) for part in item['loc'])}: {item['msg']}" for item in error.errors()]
        raise EndpointsError("\n".join(lines)) from error
    except OSError as error:
        message = f"{path} cannot be read by user {os.geteuid()}: {error.strerror}"
        raise EndpointsError(message) from error
