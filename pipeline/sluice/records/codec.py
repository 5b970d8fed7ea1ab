"""The interface to records of a format with a schema, and the parts that such formats share."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from sluice.api.declarations import DeclarationError
from sluice.api.formats import PublishedAvro, PublishedProtobuf, SchemaFormat, header

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

ANY_ID = 0
"""The schema id of records that no registry knows: those of checks and of `sluice.testing`."""
DECODED = "record"


class Codec(Protocol):
    """Reads and writes the records of one format."""

    def columns(self, session: "SparkSession") -> dict[str, str]:
        """Return the columns of the schema, and their types in Spark's words."""

    def read(self, records: "DataFrame") -> "tuple[DataFrame, Column]":
        """Add the column `DECODED`, and return why a record cannot be read, or null."""

    def write(
        self, result: "DataFrame", fields: "Mapping[str, Column]", place: str
    ) -> "tuple[DataFrame, Column, Column]":
        """Add the column `place`; return the bytes of these fields, and why there are none."""

    def of_json(self, session: "SparkSession", texts: Iterable[str]) -> list[bytes | str]:
        """Return each record of a test with its header, or why the schema has no place for it."""


def written_header(form: SchemaFormat) -> bytes:
    """Return the bytes before each record that a tier writes."""
    schema_id = form.schema_id if isinstance(form, PublishedAvro | PublishedProtobuf) else ANY_ID
    if schema_id is None:
        message = "a stream that a tier writes has no schema id; run `sluice publish`, then upgrade the tier"
        raise DeclarationError(message)
    return header(schema_id)


def attempted(column: "Column") -> "Column":
    """Return the column, with null instead of an error; Python has no name for this in Spark."""
    from pyspark import SparkContext  # noqa: PLC0415 — only where Spark runs

    jvm: Any = SparkContext._jvm  # noqa: SLF001 — no public API
    utils = jvm.org.apache.spark.sql.classic.ExpressionUtils
    attempt = jvm.org.apache.spark.sql.catalyst.expressions.TryEval(utils.expression(column._jc))  # noqa: SLF001
    return type(column)(utils.column(attempt))
