"""Protobuf in Spark: the columns of a message, and records to and from them."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.json_format import Parse, ParseError
from google.protobuf.message import EncodeError
from google.protobuf.wrappers_pb2 import Int64Value
from pyspark.sql import functions as F  # noqa: N812 — what everyone calls it
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from sluice.api.formats import Protobuf
from sluice.records import java_functions
from sluice.records.codec import DECODED, written_header

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

SOURCE = Path(__file__).with_name("ProtobufFunctions.java")
READ = "_read"
KINDS = {
    FieldDescriptor.TYPE_INT32: IntegerType(),
    FieldDescriptor.TYPE_SINT32: IntegerType(),
    FieldDescriptor.TYPE_SFIXED32: IntegerType(),
    FieldDescriptor.TYPE_UINT32: LongType(),
    FieldDescriptor.TYPE_FIXED32: LongType(),
    FieldDescriptor.TYPE_INT64: LongType(),
    FieldDescriptor.TYPE_SINT64: LongType(),
    FieldDescriptor.TYPE_SFIXED64: LongType(),
    FieldDescriptor.TYPE_UINT64: DecimalType(20, 0),
    FieldDescriptor.TYPE_FIXED64: DecimalType(20, 0),
    FieldDescriptor.TYPE_FLOAT: FloatType(),
    FieldDescriptor.TYPE_DOUBLE: DoubleType(),
    FieldDescriptor.TYPE_BOOL: BooleanType(),
    FieldDescriptor.TYPE_STRING: StringType(),
    FieldDescriptor.TYPE_BYTES: BinaryType(),
    FieldDescriptor.TYPE_ENUM: StringType(),
}
"""The types of columns: a number without a sign has the next larger type of Spark."""


TIMESTAMP = "google.protobuf.Timestamp"


@dataclass(frozen=True)
class ProtobufCodec:
    """Reads and writes the records of a Protobuf stream."""

    form: Protobuf

    def columns(self, session: "SparkSession") -> dict[str, str]:  # noqa: ARG002 - Avro needs the session
        """Return the columns of the message, and their types in Spark's words."""
        return {field.name: field.dataType.simpleString() for field in _struct(self.form.descriptor).fields}

    def read(self, records: "DataFrame") -> "tuple[DataFrame, Column]":
        """Add the column `DECODED`, and return why a record cannot be read, or null."""
        kind = StructType().add(DECODED, _struct(self.form.descriptor)).add("reason", "string")
        reader = self._function(records.sparkSession, "Reader", kind)
        read = records.withColumn(READ, F.call_udf(reader, F.col("value")))
        return read.withColumn(DECODED, F.col(READ)[DECODED]), F.col(READ)["reason"]

    def write(
        self, result: "DataFrame", fields: "Mapping[str, Column]", place: str
    ) -> "tuple[DataFrame, Column, Column]":
        """Add the column `place`; return the bytes of these fields, and why there are none."""
        kind = StructType().add("value", "binary").add("reason", "string")
        writer = self._function(result.sparkSession, "Writer", kind, written_header(self.form))
        record = F.struct(*(fields[field.name] for field in self.form.descriptor.fields))
        written = result.withColumn(place, F.call_udf(writer, record))
        return written, F.col(place)["value"], F.col(place)["reason"]

    def of_json(self, session: "SparkSession", texts: Iterable[str]) -> list[bytes | str]:  # noqa: ARG002
        """Return each record with its header, or why the message has no place for it."""
        return [self._of_json(text) for text in texts]

    def _of_json(self, text: str) -> bytes | str:
        message: Any = self.form.message()
        try:
            Parse(text, message)
            content: bytes = message.SerializeToString()
        except (ParseError, EncodeError) as error:
            return str(error)
        return written_header(self.form) + _place(self.form.descriptor) + content

    def _function(
        self, session: "SparkSession", class_name: str, kind: StructType, *arguments: object
    ) -> str:
        jvm: Any = session._jvm  # noqa: SLF001 — no public API
        java_functions.refuse_missing(jvm.com.google.protobuf.DynamicMessage, "Protobuf's package for Java")
        message = self.form.descriptor
        files, name = _files(message.file), f"sluice.ProtobufFunctions${class_name}"
        return java_functions.registered(session, SOURCE, name, kind, files, _place(message), *arguments)


def _place(message: Descriptor) -> bytes:
    """Return the place of a message in its file, as records have it."""
    numbers: list[int] = []
    while message is not None:
        outer = message.containing_type
        siblings = message.file.message_types_by_name.values() if outer is None else outer.nested_types
        numbers.insert(0, [*siblings].index(message))
        message = outer
    return b"\0" if numbers == [0] else b"".join(map(_zigzag, (len(numbers), *numbers)))


def _zigzag(number: int) -> bytes:
    """Return a number as Protobuf writes an `sint32`."""
    field: bytes = Int64Value(value=2 * number).SerializeToString()
    return field[1:] or b"\0"


def _struct(message: Descriptor) -> StructType:
    struct = StructType()
    for field in message.fields:
        struct.add(field.name, _column_type(field))
    return struct


def _column_type(field: FieldDescriptor) -> DataType:
    if not field.is_repeated:
        return _item_type(field)
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        return MapType(*(_item_type(entry.fields_by_name[name]) for name in ("key", "value")))
    return ArrayType(_item_type(field))


def _item_type(field: FieldDescriptor) -> DataType:
    if field.message_type is None:
        return KINDS[field.type]
    return TimestampType() if field.message_type.full_name == TIMESTAMP else _struct(field.message_type)


def _files(file: FileDescriptor) -> bytes:
    """Return a file after all that it imports, as a FileDescriptorSet."""
    files = {imported.name: imported.serialized_pb for imported in _with_imports(file)}
    protos = [FileDescriptorProto.FromString(content) for content in files.values()]
    for proto in protos:
        # otherwise Java would read texts of proto2 that are not UTF-8, with other characters
        proto.options.java_string_check_utf8 = True
    return bytes(FileDescriptorSet(file=protos).SerializeToString())


def _with_imports(file: FileDescriptor) -> Iterator[FileDescriptor]:
    for imported in file.dependencies:
        yield from _with_imports(imported)
    yield file
