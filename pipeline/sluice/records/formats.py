"""Formats in Spark: what a tier reads from the bytes of a record, and the bytes that it writes."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 — what everyone calls it

from sluice.api.column_types import columns as columns_of
from sluice.api.declarations import DeclarationError, Stream, Tier
from sluice.api.formats import Avro, Bytes, Protobuf, SchemaFormat, schema_words
from sluice.records.codec import DECODED, Codec

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

UNREADABLE = "unreadable"
"""The field of `lineage` that says why a record could not be read; null for readable records."""
JSON_OPTIONS = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS][XXX]",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]",
}
"""Times keep their microseconds; Spark's defaults would cut them to milliseconds."""


@dataclass(frozen=True)
class Written:
    """A record as a stream gets it."""

    value: "Column"
    """The bytes."""
    unfit: "Column | None" = None
    """Why the stream's format has no bytes for the record, or null."""


def codec(form: SchemaFormat) -> Codec:
    """Return what reads and writes records of a format."""
    match form:
        case Avro():
            from sluice.records.avro import AvroCodec  # noqa: PLC0415 — most pipelines have no Avro

            return AvroCodec(form)
        case Protobuf():
            from sluice.records.protobuf import ProtobufCodec  # noqa: PLC0415 — likewise

            return ProtobufCodec(form)


def decoded(records: "DataFrame", stream: Stream, lineage: "Iterable[Column]", name: str) -> "DataFrame":
    """Return the columns of a stream's records, and the fields of lineage in the struct `name`."""
    if isinstance(stream.format, SchemaFormat):
        read, reason = codec(stream.format).read(records)
        whole = F.struct(*lineage, reason.alias(UNREADABLE)).alias(name)
        return read.select(DECODED, whole).select(f"{DECODED}.*", name)
    if isinstance(stream.format, Bytes):
        return records.select("value", F.struct(*lineage).alias(name))
    text = F.col("value").cast("string")
    if stream.columns is None:
        return records.select(text.alias("value"), F.struct(*lineage).alias(name))
    parsed = F.from_json(text, stream.columns).alias(DECODED)
    return records.select(parsed, F.struct(*lineage).alias(name)).select(f"{DECODED}.*", name)


def unreadable(tier: Tier, lineage: str) -> "list[Column]":
    """Return why a record could not be read, or null; nothing if its format has no schema."""
    return [F.col(lineage)[UNREADABLE]] if isinstance(tier.inputs[0].format, SchemaFormat) else []


def encoded(result: "DataFrame", tier: Tier, columns: list[str]) -> "tuple[DataFrame, dict[str, Written]]":
    """Return the result with more columns, and what each output stream gets of it.

    `columns` are those of a record in JSON.
    """
    values: dict[str, Written] = {}
    for number, stream in enumerate(tier.outputs):
        match stream.format:
            case Avro() | Protobuf() as form:
                fields = {name: F.col(name) for name in columns_of(stream.columns or "")}
                result, value, misfit = codec(form).write(result, fields, f"_encoded{number}")
                text = f"the record does not fit the {schema_words(form)} of {stream.name}: "
                values[stream.name] = Written(value, F.concat(F.lit(text), misfit))
            case Bytes():
                values[stream.name] = Written(F.col("value"))
            case None:
                json = F.to_json(F.struct(*columns), JSON_OPTIONS)
                values[stream.name] = Written(json.cast("binary"))
    return result, values


def check_written(result: "DataFrame", tier: Tier) -> None:
    """Refuse a declaration that differs from its schema, and a result that lacks a column."""
    returned = {field.name: field.dataType.simpleString() for field in result.schema.fields}
    for stream in tier.outputs:
        if stream.format is None:
            continue
        wanted = columns_of(stream.columns or "")
        if isinstance(stream.format, SchemaFormat):
            own = codec(stream.format).columns(result.sparkSession)
            if wanted != {field: columns_of(f"c {kind}")["c"] for field, kind in own.items()}:
                text = ", ".join(f"{field} {kind}" for field, kind in own.items())
                message = (
                    f'tier "{tier.name}": the columns of "{stream.name}" are {stream.columns!r}, but its '
                    f"{schema_words(stream.format)} has {text!r}; declare these columns"
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
