"""Former import names, for releases that were published before `pipeline` became `sluice` and `ops` became `sluice_ops`.

A release is a copy of a pipeline's code. During an upgrade, drivers of this version load releases that import the former names.
This module goes with the next version.
"""

import re
import sys
from collections.abc import Iterable
from types import ModuleType

import sluice

_FORMER_PACKAGES = ("ops", "ops.model", "pipeline", "pipeline.sinks")
_FORMER_MODULES = (
    "ops.model.pressure",
    "ops.model.resources",
    "ops.model.tier",
    "pipeline.declare",
    "pipeline.grouping",
    "pipeline.hooks",
    "pipeline.joins",
    "pipeline.sinks.http",
    "pipeline.sinks.sink",
    "pipeline.sinks.marks",
    "pipeline.sinks.table",
)


class _Package(ModuleType):
    """A package without files."""

    __path__: list[str] = []  # noqa: RUF012 — Python's name for a package's folders


_IMPORT = re.compile(rf"^\s*(?:from|import) (?:{'|'.join(map(re.escape, _FORMER_MODULES))})\b", re.MULTILINE)


def are_used(sources: Iterable[str]) -> bool:
    """Tell whether one of these Python sources imports a former module."""
    return any(_IMPORT.search(source) for source in sources)


def provide() -> None:
    """Make each former module of the public API an alias of `sluice`."""
    for name in _FORMER_PACKAGES:
        sys.modules.setdefault(name, _Package(name))
    for name in _FORMER_MODULES:
        sys.modules.setdefault(name, sluice)
