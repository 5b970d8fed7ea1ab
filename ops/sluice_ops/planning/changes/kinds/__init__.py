"""The kinds of change, one module for each. A new kind is a new module here that sets `KIND`.

The registry finds the modules by itself. Start with `cordon`.
"""

from collections.abc import Mapping
from importlib import import_module
from pkgutil import iter_modules

from sluice_ops.planning.changes.kind import Kind

_MODULES = [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__)]
KINDS: Mapping[str, Kind] = {module.KIND.name: module.KIND for module in _MODULES}
"""Every kind of change by its name."""
