"""Formats: how the records of a stream are encoded, if not as JSON or text. Pure."""

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from google.protobuf.message import Message

MAGIC = b"\0"
"""The first byte of each record that names its schema in a schema registry."""
OWN_FILES = "google/protobuf/"
"""The folder of the files that Protobuf brings with it, which each registry knows."""


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
class Protobuf:
    """Each record is a Protobuf message, and names its schema in the site's schema registry.

    That is what Confluent's serializers write: a byte 0, the schema's id in 4 bytes, the place of
    the message in its file, the message.
    """

    message: "type[Message]" = field(hash=False)
    """The class that `protoc` generated, such as `hit_pb2.Hit`.

    Tiers read each record as this message, whatever schema the sender wrote it with, and write such
    messages.
    """

    @property
    def descriptor(self) -> Any:
        """The class's description of its fields and its file."""
        message: Any = self.message
        return message.DESCRIPTOR


@dataclass(frozen=True)
class PublishedAvro(Avro):
    """Avro of a published pipeline: what its drivers know about the registry."""

    registry: str | None
    """The registry's address; None: only records with the schema's own id can be read."""
    schema_id: int | None
    """The id of the schema in the registry; None for streams from outside."""


@dataclass(frozen=True)
class PublishedProtobuf(Protobuf):
    """Protobuf of a published pipeline."""

    schema_id: int | None
    """The id of the schema in the registry; None for streams from outside."""


SchemaFormat: TypeAlias = Avro | Protobuf
"""A format whose records name their schema in a schema registry."""
Format: TypeAlias = SchemaFormat | Bytes
"""The format of a stream."""


def header(schema_id: int) -> bytes:
    """Return the bytes before a record that was written with this schema."""
    return MAGIC + schema_id.to_bytes(4, "big")


def subject(stream: str) -> str:
    """Return the name under which the registry keeps the schemas of a stream."""
    return f"{stream}-value"


def published(form: SchemaFormat, registry: str | None, schema_id: int | None) -> SchemaFormat:
    """Return the format with what a driver has to know about the registry."""
    match form:
        case Avro():
            return PublishedAvro(form.schema, registry, schema_id)
        case Protobuf():
            return PublishedProtobuf(form.message, schema_id)


def schema_words(form: SchemaFormat) -> str:
    """Return what a sentence calls the schema."""
    return "Avro schema" if isinstance(form, Avro) else "Protobuf message"


def registration(form: SchemaFormat) -> Mapping[str, str]:
    """Return the schema as the registry takes it."""
    if isinstance(form, Avro):
        return {"schema": form.schema}
    file = form.descriptor.file.serialized_pb
    return {"schema": base64.b64encode(file).decode(), "schemaType": "PROTOBUF"}


def faults(form: Format | None, columns: str | None, *, is_written: bool) -> Iterator[str]:
    """Yield what is wrong with the format of a stream; `is_written`: a tier writes the stream."""
    if isinstance(form, Bytes) and is_written and (columns or "").split() != ["value", "binary"]:
        yield 'a stream of bytes has one column; declare its columns as "value binary"'
    if not isinstance(form, SchemaFormat):
        return
    if is_written and columns is None:
        yield f"a tier writes the stream, so declare its columns, too: those of its {schema_words(form)}"
    yield from _avro_faults(form.schema) if isinstance(form, Avro) else _protobuf_faults(form)


def _avro_faults(text: str) -> Iterator[str]:
    try:
        schema = json.loads(text)
    except ValueError as error:
        yield f"its Avro schema is not JSON ({error}); give the text of a file such as hit.avsc"
        return
    if not (isinstance(schema, dict) and schema.get("type") == "record" and schema.get("fields")):
        yield (
            "its Avro schema is not that of a record with fields: "
            '{"type": "record", "name": …, "fields": […]}'
        )


def _protobuf_faults(form: Protobuf) -> Iterator[str]:
    from google.protobuf.message import Message  # noqa: PLC0415 — most pipelines have no Protobuf

    if not (isinstance(form.message, type) and issubclass(form.message, Message)):
        yield f"Protobuf takes a class that protoc generated, such as hit_pb2.Hit, not {form.message!r}"
        return
    declared = form.descriptor
    if others := [file.name for file in declared.file.dependencies if not file.name.startswith(OWN_FILES)]:
        yield (
            f"{declared.file.name} imports {', '.join(others)}, and Sluice registers one file only; "
            f"move what {declared.full_name} needs into {declared.file.name}"
        )
    if not declared.fields:
        yield f"the message {declared.full_name} has no fields; choose a message with fields"
    yield from dict.fromkeys(_message_faults(declared, ()))


def _message_faults(message: Any, above: tuple[str, ...]) -> Iterator[str]:
    """Yield what columns have no place for, in a message and in the messages within it."""
    if message.full_name in above:
        circle = " → ".join((*above[above.index(message.full_name) :], message.full_name))
        yield f"a message contains itself ({circle}), and a column cannot; use a field of bytes there"
        return
    if message.is_extendable:
        yield f"the message {message.full_name} takes extensions, which no column could hold; remove them"
    for each in message.fields:
        if each.type == each.TYPE_GROUP:
            yield f"the field {each.full_name} is a group; use a message instead"
        elif each.message_type is not None:
            yield from _message_faults(each.message_type, (*above, message.full_name))
