"""Formats: how the records of a stream are encoded, if not as JSON or text. Pure."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

MAGIC = b"\0"
"""The first byte of each record that names its schema in a schema registry."""


@dataclass(frozen=True)
class Bytes:
    """Each record is the bytes of the one column `value`; Sluice never reads them as text."""


@dataclass(frozen=True)
class Avro:
    """Each record is Avro, and names its schema in the site's schema registry.

    That is what Confluent's serializers write: a byte 0, the schema's id in 4 bytes, the record.
    """

    schema: str
    """The Avro schema of a record, as JSON.

    Tiers read each record with this schema, whatever schema the sender wrote it with, and write
    records with this schema.
    """


@dataclass(frozen=True)
class PublishedAvro(Avro):
    """Avro of a published pipeline: what its drivers know about the registry."""

    registry: str | None
    """The registry's address; None: only records with the schema's own id can be read."""
    schema_id: int | None
    """The id of the schema in the registry; None for streams from outside."""


Format = Avro | Bytes
"""The format of a stream."""


def header(schema_id: int) -> bytes:
    """Return the bytes before a record that was written with this schema."""
    return MAGIC + schema_id.to_bytes(4, "big")


def subject(stream: str) -> str:
    """Return the name under which the registry keeps the schemas of a stream."""
    return f"{stream}-value"


def faults(form: Format | None, columns: str | None, *, is_written: bool) -> Iterator[str]:
    """Yield what is wrong with the format of a stream; `is_written`: a tier writes the stream."""
    if isinstance(form, Bytes) and is_written and (columns or "").split() != ["value", "binary"]:
        yield 'a stream of bytes has one column; declare its columns as "value binary"'
    if not isinstance(form, Avro):
        return
    if is_written and columns is None:
        yield "a tier writes the stream, so declare its columns, too: those of its Avro schema"
    try:
        schema = json.loads(form.schema)
    except ValueError as error:
        yield f"its Avro schema is not JSON ({error}); give the text of a file such as hit.avsc"
        return
    if not (isinstance(schema, dict) and schema.get("type") == "record" and schema.get("fields")):
        yield (
            "its Avro schema is not that of a record with fields: "
            '{"type": "record", "name": …, "fields": […]}'
        )
