"""The project that a command works on: the nearest folder with a site file.

The site file, the home and the pipeline's package lie in the project. SLUICE_SITE and SLUICE_HOME
name another site file and another home; services on real hosts set both.
"""

import os
import sys
from pathlib import Path

SITE = "site.yaml"
HOME = ".sluice"


def found() -> Path | None:
    """Return the current folder or the nearest one above it that has a site file, if any."""
    try:
        here = Path.cwd()
    except FileNotFoundError:  # another process removed the folder
        return None
    return next((folder for folder in (here, *here.parents) if os.path.isfile(folder / SITE)), None)  # noqa: PTH113 — is_file fails in a folder that this user cannot read


def folder() -> Path:
    """Return the project; without one, the current folder."""
    return found() or Path()


def site_path() -> Path:
    """Return the path of the site file: SLUICE_SITE, or else the project's."""
    return _named("SLUICE_SITE", SITE)


def home() -> Path:
    """Return the folder of all data, logs, jars and passwords: SLUICE_HOME, or else `own_home`."""
    return _named("SLUICE_HOME", HOME)


def own_home() -> Path:
    """Return the home in the project itself; without a project, `home`.

    Other homes of the project take their jars from it.
    """
    project = found()
    return home() if project is None else (project / HOME).resolve()


def environment() -> dict[str, str]:
    """Return the variables by which another process finds the same site file and home."""
    return {"SLUICE_HOME": str(home()), "SLUICE_SITE": str(site_path())}


def use_code() -> None:
    """Let this process, and those that it starts, import the code of the project.

    Only commands that run a pipeline's code call this function.
    """
    project = found()
    if project is None:
        return
    others = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    paths = [str(project), *(path for path in others if path not in {"", str(project)})]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    if str(project) not in sys.path:
        sys.path.append(str(project))


def _named(variable: str, default: str) -> Path:
    named = os.environ.get(variable)
    return (folder() / default if named is None else Path(named)).resolve()
