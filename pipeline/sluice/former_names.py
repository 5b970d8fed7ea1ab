"""Former import names of `sluice` and `sluice_ops`, for releases that were published under these
names.

The packages were called `pipeline` and `ops`. A release is a copy of a pipeline's code, so an old
release imports the former names. During an upgrade, drivers of this version load old releases. The
next version removes this module.
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
    __path__: list[str] = []  # noqa: RUF012 — Python's name for a package's folders


_IMPORT = re.compile(rf"^\s*(?:from|import) (?:{'|'.join(map(re.escape, _FORMER_MODULES))})\b", re.MULTILINE)


def are_used(sources: Iterable[str]) -> bool:
    """Tell whether a Python source imports a former module."""
    return any(_IMPORT.search(source) for source in sources)


def provide() -> None:
    """Make each former module of the public API an alias of `sluice`."""
    for name in _FORMER_PACKAGES:
        sys.modules.setdefault(name, _Package(name))
    for name in _FORMER_MODULES:
        sys.modules.setdefault(name, sluice)
