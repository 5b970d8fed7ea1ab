"""Avro in Spark: the columns of a schema, and records to and from them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import SparkContext
from pyspark.sql import functions as F  # noqa: N812 — what everyone calls it
from pyspark.sql.avro.functions import from_avro, to_avro
from pyspark.sql.types import StructType

from sluice.api.formats import Avro, PublishedAvro
from sluice.records import java_functions
from sluice.records.codec import ANY_ID, DECODED, attempted, written_header

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

READER = Path(__file__).with_name("AvroReader.java")
UNWRAPPED = "_unwrapped"


@dataclass(frozen=True)
class AvroCodec:
    """Reads and writes the records of an Avro stream."""

    form: Avro

    def columns(self, session: "SparkSession") -> dict[str, str]:
        """Return the columns of the schema, and their types in Spark's words."""
        empty = session.createDataFrame([], "value binary").select(self._from(F.col("value")).alias(DECODED))
        fields = empty.select(f"{DECODED}.*").schema.fields
        return {field.name: field.dataType.simpleString() for field in fields}

    def read(self, records: "DataFrame") -> "tuple[DataFrame, Column]":
        """Add the column `DECODED`, and return why a record cannot be read, or null."""
        unwrapped = F.call_udf(self._reader(records.sparkSession), F.col("value"))
        record = attempted(self._from(F.col(UNWRAPPED)["payload"]))
        named = F.conv(F.hex(F.substring("value", 2, 4)), 16, 10)
        broken = F.when(
            F.col(DECODED).isNull(), F.concat(F.lit("the record is not valid Avro of its schema id "), named)
        )
        read = records.withColumn(UNWRAPPED, unwrapped).withColumn(DECODED, record)
        return read, F.coalesce(F.col(UNWRAPPED)["reason"], broken)

    def write(
        self, result: "DataFrame", fields: "Mapping[str, Column]", place: str
    ) -> "tuple[DataFrame, Column, Column]":
        """Add the column `place`; return the bytes of these fields, and why there are none."""
        _refuse_missing_package()
        record = F.struct(*(column.alias(name) for name, column in fields.items()))
        written = result.withColumn(place, attempted(to_avro(record, self.form.schema)))
        nulls = F.concat_ws(", ", *(F.when(column.isNull(), F.lit(name)) for name, column in fields.items()))
        text = F.lit("it has a null or an enum symbol that the schema lacks; null columns: ")
        misfit = F.concat(text, F.coalesce(F.nullif(nulls, F.lit("")), F.lit("none")))
        value = F.concat(F.lit(written_header(self.form)), F.col(place))
        return written, value, F.when(F.col(place).isNull(), misfit)

    def of_json(self, session: "SparkSession", texts: Iterable[str]) -> list[bytes | str]:
        """Return each record with its header, or why the schema has no place for it."""
        kinds = self.columns(session)
        own = ", ".join(f"`{name}` {kind}" for name, kind in kinds.items())
        frame = session.createDataFrame([(text,) for text in texts], "text string").coalesce(1)
        read = frame.select(F.from_json("text", own).alias(DECODED))
        fields = {name: F.col(DECODED)[name] for name in kinds}
        written, value, misfit = self.write(read, fields, "_encoded")
        rows = written.select(value, misfit).collect()
        return [misfit if value is None else bytes(value) for value, misfit in rows]

    def _from(self, payload: "Column") -> "Column":
        _refuse_missing_package()
        return from_avro(payload, self.form.schema, {"mode": "FAILFAST"})

    def _reader(self, session: "SparkSession") -> str:
        """Return the name of the function that unwraps records."""
        registry, schema_id = (
            (self.form.registry, self.form.schema_id)
            if isinstance(self.form, PublishedAvro)
            else (None, ANY_ID)
        )
        published_id = -1 if schema_id is None else schema_id
        kind = StructType().add("payload", "binary").add("reason", "string")
        schema = self.form.schema
        return java_functions.registered(
            session, READER, "sluice.AvroReader", kind, registry, published_id, schema
        )


def _refuse_missing_package() -> None:
    jvm: Any = SparkContext._jvm  # noqa: SLF001 — no public API
    java_functions.refuse_missing(jvm.org.apache.spark.sql.avro.functions, "Spark's package for Avro")
