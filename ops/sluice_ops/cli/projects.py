"""The commands for a project: `init`, `publish`, `test`."""

import keyword
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from sluice_ops.cli.become import become
from sluice_ops.cli.errors import WrongUsageError
from sluice_ops.cli.output import AsJson
from sluice_ops.site import project

app = typer.Typer()

TEMPLATE = Path(__file__).parents[1] / "template"
NAME = "shop"
"""The name of the pipeline in the template."""
NEXT = """\
{folder} has a pipeline of two tiers. Next:

    cd {folder}
    sluice test    # run the tests of its transforms
    sluice up      # start a whole platform on this machine
    sluice status  # show hosts, tiers and problems

README.md there has the commands that follow."""


@app.command(epilog="Example: sluice init shop")
def init(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The name of the pipeline, its package and its folder.")
    ],
) -> None:
    """Make a project with a pipeline of two tiers.

    The project has tests, a site file, and the DAGs of runbooks.
    """
    if re.fullmatch(r"[a-z][a-z0-9_]*", name) is None or keyword.iskeyword(name):
        message = f"{name!r} cannot be the name of a Python package: use letters a-z, digits and _"
        raise WrongUsageError(message)
    if name in {"dags", "tests"} or find_spec(name) is not None:
        message = f"the name {name!r} belongs to another Python module; choose another name"
        raise WrongUsageError(message)
    folder = Path(name)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        message = f"{folder.resolve()} exists and is not empty; choose another name, or remove it"
        raise WrongUsageError(message)
    for source in sorted(path for path in TEMPLATE.rglob("*") if path.is_file()):
        if "__pycache__" in source.parts:
            continue
        target = folder / _renamed(str(source.relative_to(TEMPLATE)), name)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_renamed(source.read_text(), name))
    (folder / "gitignore").rename(folder / ".gitignore")
    typer.echo(NEXT.format(folder=folder))
    for variable in ("SLUICE_SITE", "SLUICE_HOME"):
        if variable in os.environ:
            typer.echo(
                f"\n{variable} is set, so commands would not use this project's: unset {variable}", err=True
            )


def _renamed(text: str, name: str) -> str:
    return re.sub(rf"\b(test_)?{NAME}\b", rf"\g<1>{name}", text)


@app.command(epilog="Example: sluice publish --dry-run, or: sluice publish --json | jq -r .release")
def publish(
    *,
    check: Annotated[bool, typer.Option("--check", help="Only check each tier; publish nothing.")] = False,
    declared: Annotated[
        bool, typer.Option("--declared", help="With --check: check the declarations only, without Spark.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what publishing would change; write nothing.")
    ] = False,
    yes: Annotated[
        bool,
        typer.Option(
            "--yes",
            help="Stop running tiers that the pipeline no longer declares; "
            "replace tiers that another pipeline published.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Publish the pipeline's streams, tables and a new release.

    The pipeline of the site file is checked first. A running tier keeps its release until `sluice
    upgrade TIER`.
    """
    if find_spec("pyspark") is None:
        raise ModuleNotFoundError(name="pyspark")
    flags = {"--check": check, "--declared": declared, "--dry-run": dry_run, "--yes": yes, "--json": as_json}
    project.use_code()
    become("sluice.commands.publish", *(flag for flag, chosen in flags.items() if chosen))


@app.command(
    epilog="Example: sluice test -k orders",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def test(context: typer.Context) -> None:
    """Run the project's tests; pytest gets all arguments.

    The declarations are checked first.
    """
    folder = project.found()
    if folder is None:
        message = "no folder here or above has a site.yaml: run this in the folder of a project"
        raise WrongUsageError(message)
    if find_spec("pytest") is None:
        message = "pytest is not installed: pip install pytest"
        raise WrongUsageError(message)
    if not any(Path(word.split("::")[0]).exists() for word in context.args):
        os.chdir(folder)
    project.use_code()
    declared = subprocess.run(
        [sys.executable, "-m", "sluice.commands.publish", "--check", "--declared"],
        stdout=subprocess.DEVNULL,
        check=False,
    )
    if declared.returncode:
        raise typer.Exit(declared.returncode)
    become("pytest", *context.args)
