"""Messages for tests, as `protoc` would generate them; no machine needs `protoc`."""

from collections.abc import Iterable, Sequence
from typing import Any

from google.protobuf import struct_pb2, timestamp_pb2
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    EnumValueDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

TIMESTAMP, TIMESTAMP_FILE = ".google.protobuf.Timestamp", timestamp_pb2.DESCRIPTOR.name


def field(number: int, name: str, kind: str, label: str = "optional", **more: Any) -> FieldDescriptorProto:
    """Return a field; `kind` is a scalar type, `.a.Message`, `enum .a.Enum` or `group .a.Group`."""
    word, _, type_name = (f"message {kind}" if kind.startswith(".") else kind).partition(" ")
    return FieldDescriptorProto(
        number=number,
        name=name,
        label=f"LABEL_{label.upper()}",
        type=f"TYPE_{word.upper()}",
        type_name=type_name or None,
        **more,
    )


def optional(number: int, name: str, kind: str) -> FieldDescriptorProto:
    """Return a field of proto3 that is `optional`."""
    return field(number, name, kind, proto3_optional=True)


def message(
    name: str,
    *fields: FieldDescriptorProto,
    nested: Iterable[DescriptorProto] = (),
    oneof: Sequence[str] = (),
    **more: Any,
) -> DescriptorProto:
    """Return a message; the fields that `oneof` names are one choice."""
    made = DescriptorProto(name=name, field=fields, nested_type=nested, **more)
    if oneof:
        made.oneof_decl.add(name="choice")
    for each in made.field:
        if each.name in oneof:
            each.oneof_index = 0
        elif each.proto3_optional:
            each.oneof_index = len(made.oneof_decl)
            made.oneof_decl.add(name=f"_{each.name}")
    return made


def map_entry(name: str, key: str, value: str) -> DescriptorProto:
    """Return the nested message of which a map consists."""
    made = message(name, field(1, "key", key), field(2, "value", value))
    made.options.map_entry = True
    return made


def enum(name: str, *symbols: str) -> EnumDescriptorProto:
    """Return an enum whose numbers begin at 0."""
    values = (EnumValueDescriptorProto(name=symbol, number=number) for number, symbol in enumerate(symbols))
    return EnumDescriptorProto(name=name, value=values)


def file(
    name: str,
    *messages: DescriptorProto,
    syntax: str = "proto3",
    enums: Iterable[EnumDescriptorProto] = (),
    imports: Iterable[str] = (),
) -> FileDescriptorProto:
    """Return a file of the package `hits`."""
    return FileDescriptorProto(
        name=name, package="hits", syntax=syntax, message_type=messages, enum_type=enums, dependency=imports
    )


def message_class(*files: FileDescriptorProto, name: str) -> Any:
    """Return the class of a message of the last file; files that it imports come before it."""
    pool = DescriptorPool()
    for own in (timestamp_pb2, struct_pb2):
        pool.AddSerializedFile(own.DESCRIPTOR.serialized_pb)
    for each in files:
        pool.AddSerializedFile(each.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName(f"hits.{name}"))


def hit(*fields: FieldDescriptorProto, **more: Any) -> Any:
    """Return the class `hits.Hit` with these fields, the only message of its file."""
    imports = [TIMESTAMP_FILE] if any(each.type_name == TIMESTAMP for each in fields) else []
    return message_class(file("hit.proto", message("Hit", *fields, **more), imports=imports), name="Hit")
