"""Copies of the package `nexmark` with the tiers of some queries only."""

import shutil
from pathlib import Path

import nexmark


def write_package(folder: Path, queries: tuple[str, ...]) -> None:
    """Copy the package into a folder, with the entry and the tiers of these queries."""
    package = folder / "nexmark"
    shutil.copytree(Path(nexmark.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    names = ("entry", *queries)
    with (package / "__init__.py").open("a") as code:
        code.write(f"\nPIPELINE = Pipeline(tuple(map(PIPELINE.tier, {names})))\n")
