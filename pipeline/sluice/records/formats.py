"""Formats in Spark: what a tier reads from the bytes of a record, and the bytes that it writes."""

import hashlib
import tempfile
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 — what everyone calls it

from sluice.api.column_types import columns as columns_of
from sluice.api.declarations import DeclarationError, Stream, Tier
from sluice.api.formats import Avro, Bytes, PublishedAvro, header

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

UNREADABLE = "unreadable"
"""The field of `lineage` that says why a record could not be read; null for readable records."""
JSON_OPTIONS = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS][XXX]",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]",
}
"""Times keep their microseconds; Spark's defaults would cut them to milliseconds."""
ANY_ID = 0
"""The schema id of records that no registry knows: those of checks and of `sluice.testing`."""
READER = Path(__file__).with_name("AvroReader.java")
UNWRAPPED, DECODED = "_unwrapped", "record"


def decoded(records: "DataFrame", stream: Stream, lineage: "Iterable[Column]", name: str) -> "DataFrame":
    """Return the columns of a stream's records, and the fields of lineage in the struct `name`."""
    match stream.format:
        case Avro() as form:
            return _of_avro(records, form, lineage, name)
        case Bytes():
            return records.select("value", F.struct(*lineage).alias(name))
    text = F.col("value").cast("string")
    if stream.columns is None:
        return records.select(text.alias("value"), F.struct(*lineage).alias(name))
    parsed = F.from_json(text, stream.columns).alias(DECODED)
    return records.select(parsed, F.struct(*lineage).alias(name)).select(f"{DECODED}.*", name)


def _of_avro(records: "DataFrame", form: Avro, lineage: "Iterable[Column]", name: str) -> "DataFrame":
    unwrapped = F.call_udf(_reader(records.sparkSession, form), F.col("value"))
    record = _attempted(_from_avro(F.col(UNWRAPPED)["payload"], form))
    read = records.withColumn(UNWRAPPED, unwrapped).withColumn(DECODED, record)
    named = F.conv(F.hex(F.substring("value", 2, 4)), 16, 10)
    broken = F.when(
        F.col(DECODED).isNull(), F.concat(F.lit("the record is not valid Avro of its schema id "), named)
    )
    unreadable = F.coalesce(F.col(UNWRAPPED)["reason"], broken).alias(UNREADABLE)
    return read.select(DECODED, F.struct(*lineage, unreadable).alias(name)).select(f"{DECODED}.*", name)


def unreadable(tier: Tier, lineage: str) -> "list[Column]":
    """Return why a record could not be read, or null; nothing if the tier reads no Avro."""
    return [F.col(lineage)[UNREADABLE]] if isinstance(tier.inputs[0].format, Avro) else []


@dataclass(frozen=True)
class Written:
    """A record as a stream gets it."""

    value: "Column"
    """The bytes."""
    unfit: "Column | None" = None
    """Why the stream's format has no bytes for the record, or null."""


def encoded(result: "DataFrame", tier: Tier, columns: list[str]) -> "tuple[DataFrame, dict[str, Written]]":
    """Return the result with more columns, and what each output stream gets of it.

    `columns` are those of a record in JSON.
    """
    values: dict[str, Written] = {}
    for number, stream in enumerate(tier.outputs):
        match stream.format:
            case Avro() as form:
                name = f"_encoded{number}"
                result = result.withColumn(name, _attempted(_to_avro(F.struct(*_names(stream)), form)))
                unfit = F.when(F.col(name).isNull(), _misfit(stream))
                values[stream.name] = Written(F.concat(F.lit(_header(form)), F.col(name)), unfit)
            case Bytes():
                values[stream.name] = Written(F.col("value"))
            case None:
                json = F.to_json(F.struct(*columns), JSON_OPTIONS)
                values[stream.name] = Written(json.cast("binary"))
    return result, values


def check_written(result: "DataFrame", tier: Tier) -> None:
    """Refuse a declaration that differs from its Avro schema, and a result that lacks a column."""
    returned = {field.name: field.dataType.simpleString() for field in result.schema.fields}
    for stream in tier.outputs:
        if stream.format is None:
            continue
        wanted = columns_of(stream.columns or "")
        if isinstance(stream.format, Avro):
            own = columns_of_avro(result.sparkSession, stream.format)
            if wanted != {field: columns_of(f"c {kind}")["c"] for field, kind in own.items()}:
                text = ", ".join(f"{field} {kind}" for field, kind in own.items())
                message = (
                    f'tier "{tier.name}": the columns of "{stream.name}" are {stream.columns!r}, but its '
                    f"Avro schema has {text!r}; declare the columns of the schema"
                )
                raise DeclarationError(message)
        for field, kind in wanted.items():
            is_returned = columns_of(f"c {returned.get(field, 'void')}")["c"]
            if field not in returned or is_returned != kind:
                what = f"returns it as {returned[field]}" if field in returned else "does not return it"
                message = (
                    f'tier "{tier.name}": "{stream.name}" needs the column {field} as {kind}, but the '
                    f'transform {what}; return F.col("{field}").cast("{kind}")'
                )
                raise DeclarationError(message)


def _names(stream: Stream) -> list[str]:
    return [*columns_of(stream.columns or "")]


def columns_of_avro(session: "SparkSession", form: Avro) -> dict[str, str]:
    """Return the columns of an Avro schema, and their types in Spark's words."""
    empty = session.createDataFrame([], "value binary").select(
        _from_avro(F.col("value"), form).alias("record")
    )
    return {field.name: field.dataType.simpleString() for field in empty.select("record.*").schema.fields}


def _header(form: Avro) -> bytes:
    schema_id = form.schema_id if isinstance(form, PublishedAvro) else ANY_ID
    if schema_id is None:
        message = "a stream that a tier writes has no schema id; run `sluice publish`, then upgrade the tier"
        raise DeclarationError(message)
    return header(schema_id)


def avro_of_json(session: "SparkSession", text: str, form: Avro) -> "Column":
    """Return a record in Avro, with its header, of the column `text` with its JSON; null if it does
    not fit.
    """
    own = ", ".join(f"`{name}` {kind}" for name, kind in columns_of_avro(session, form).items())
    return F.concat(F.lit(_header(form)), _attempted(_to_avro(F.from_json(F.col(text), own), form)))


def _to_avro(record: "Column", form: Avro) -> "Column":
    from pyspark.sql.avro.functions import to_avro  # noqa: PLC0415 — most pipelines have no Avro

    _refuse_missing_package()
    return to_avro(record, form.schema)


def _from_avro(payload: "Column", form: Avro) -> "Column":
    from pyspark.sql.avro.functions import from_avro  # noqa: PLC0415 — most pipelines have no Avro

    _refuse_missing_package()
    return from_avro(payload, form.schema, {"mode": "FAILFAST"})


def _refuse_missing_package() -> None:
    from py4j.java_gateway import JavaClass  # noqa: PLC0415 — likewise
    from pyspark import SparkContext  # noqa: PLC0415 — likewise

    jvm: Any = SparkContext._jvm  # noqa: SLF001 — no public API
    if not isinstance(jvm.org.apache.spark.sql.avro.functions, JavaClass):
        message = (
            "Spark's package for Avro is not in jars/connector of this home (SLUICE_HOME); "
            "`sluice up` fetches it there, once"
        )
        raise DeclarationError(message)


def _misfit(stream: Stream) -> "Column":
    """Return why a record does not fit its stream's schema."""
    nulls = F.concat_ws(", ", *(F.when(F.col(name).isNull(), F.lit(name)) for name in _names(stream)))
    text = F.lit(
        f"the record does not fit the Avro schema of {stream.name}: it has a null or an enum symbol that "
        "the schema lacks; null columns: "
    )
    return F.concat(text, F.coalesce(F.nullif(nulls, F.lit("")), F.lit("none")))


def _attempted(column: "Column") -> "Column":
    """Return the column, with null instead of an error; Python has no name for this in Spark."""
    from pyspark import SparkContext  # noqa: PLC0415 — likewise

    jvm: Any = SparkContext._jvm  # noqa: SLF001 — no public API
    utils = jvm.org.apache.spark.sql.classic.ExpressionUtils
    attempt = jvm.org.apache.spark.sql.catalyst.expressions.TryEval(utils.expression(column._jc))  # noqa: SLF001
    return type(column)(utils.column(attempt))


def _reader(session: "SparkSession", form: Avro) -> str:
    """Return the name of the function that unwraps records, which the session gets with it."""
    registry, schema_id = (
        (form.registry, form.schema_id) if isinstance(form, PublishedAvro) else (None, ANY_ID)
    )
    known = -1 if schema_id is None else schema_id
    name = "sluice_avro_" + hashlib.sha256(repr((registry, known, form.schema)).encode()).hexdigest()[:12]
    if not session.catalog.functionExists(name):
        jvm: Any = session._jvm  # noqa: SLF001 — no public API
        arguments = session.sparkContext._gateway.new_array(jvm.java.lang.Object, 3)  # noqa: SLF001
        arguments[0], arguments[1], arguments[2] = registry, known, form.schema
        function = _compiled(session).getConstructors()[0].newInstance(arguments)
        kind = jvm.org.apache.spark.sql.types.StructType.fromDDL("payload binary, reason string")
        session._jsparkSession.udf().register(name, function, kind)  # noqa: SLF001
    return name


def _compiled(session: "SparkSession") -> Any:
    """Compile the reader as Spark compiles its own code; return its class, and give it to
    executors.
    """
    jvm: Any = session._jvm  # noqa: SLF001 — no public API
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.cook(READER.read_text())
    with (
        tempfile.NamedTemporaryFile(prefix="sluice-avro-", suffix=".jar", delete=False) as jar,
        zipfile.ZipFile(jar, "w") as archive,
    ):
        for name, code in dict(compiler.getBytecodes()).items():
            archive.writestr(f"{name.replace('.', '/')}.class", bytes(code))
    session.sparkContext._jsc.sc().addJar(jar.name)  # noqa: SLF001
    return compiler.getClassLoader().loadClass("sluice.AvroReader")
