"""The public API for authors of pipelines: `from sluice import Pipeline, Tier, Stream`.

`__all__` lists everything that a pipeline may use. Start with the example pipeline in the package
`hits`. `sluice.driver` runs tiers.

Each name is imported at first use, because a driver must start its JVM before other imports.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sluice.api.declarations import DeclarationError, JobTable, Pipeline, State, Stream, Tier, Transform
    from sluice.api.formats import Avro, Bytes, Protobuf
    from sluice.api.grouping import All, Direct, Fields, Global, Grouping, Local, Shuffle
    from sluice.api.hooks import Hooks
    from sluice.api.marks import Marks, first_seen
    from sluice.api.sink import Absorbed, Rows, Sink, SinkAwayError, Unfit, Written
    from sluice.records.joins import joined
    from sluice.sinks.http import Post
    from sluice.sinks.kafka_topic import KafkaTopic
    from sluice.sinks.several import Sinks
    from sluice.sinks.sql_table import SqlTable
    from sluice.sinks.table import DeltaTable, JsonFiles, Latest, Once, ParquetFiles, Totals
    from sluice_ops.model.backpressure import Lag, Watermarks
    from sluice_ops.model.resources import Quantum
    from sluice_ops.model.tier import Delivery, Kind, Mode, Standby

__all__ = [
    "Absorbed",
    "All",
    "Avro",
    "Bytes",
    "DeclarationError",
    "Delivery",
    "DeltaTable",
    "Direct",
    "Fields",
    "Global",
    "Grouping",
    "Hooks",
    "JobTable",
    "JsonFiles",
    "KafkaTopic",
    "Kind",
    "Lag",
    "Latest",
    "Local",
    "Marks",
    "Mode",
    "Once",
    "ParquetFiles",
    "Pipeline",
    "Post",
    "Protobuf",
    "Quantum",
    "Rows",
    "Shuffle",
    "Sink",
    "SinkAwayError",
    "Sinks",
    "SqlTable",
    "Standby",
    "State",
    "Stream",
    "Tier",
    "Totals",
    "Transform",
    "Unfit",
    "Watermarks",
    "Written",
    "first_seen",
    "joined",
]

_NAMES_BY_MODULE = {
    "sluice.api.declarations": (
        "DeclarationError",
        "JobTable",
        "Pipeline",
        "State",
        "Stream",
        "Tier",
        "Transform",
    ),
    "sluice.api.formats": ("Avro", "Bytes", "Protobuf"),
    "sluice.api.grouping": ("All", "Direct", "Fields", "Global", "Grouping", "Local", "Shuffle"),
    "sluice.api.hooks": ("Hooks",),
    "sluice.api.marks": ("Marks", "first_seen"),
    "sluice.api.sink": ("Absorbed", "Rows", "Sink", "SinkAwayError", "Unfit", "Written"),
    "sluice.records.joins": ("joined",),
    "sluice.sinks.http": ("Post",),
    "sluice.sinks.kafka_topic": ("KafkaTopic",),
    "sluice.sinks.several": ("Sinks",),
    "sluice.sinks.sql_table": ("SqlTable",),
    "sluice.sinks.table": ("DeltaTable", "JsonFiles", "Latest", "Once", "ParquetFiles", "Totals"),
    "sluice_ops.model.backpressure": ("Lag", "Watermarks"),
    "sluice_ops.model.resources": ("Quantum",),
    "sluice_ops.model.tier": ("Delivery", "Kind", "Mode", "Standby"),
}
_MODULE_BY_NAME = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names}


def __getattr__(name: str) -> object:
    """Import a public name at first use."""
    if name not in _MODULE_BY_NAME:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    value = globals()[name] = getattr(import_module(_MODULE_BY_NAME[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
