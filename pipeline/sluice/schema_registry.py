"""The schema registry: publishing asks it whether schemas are compatible, and which ids they have.

Any registry with Confluent's interface will do. Executors ask it on their own, for the schemas that
records name: `pipeline/sluice/records/AvroReader.java`.
"""

import base64
import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from sluice.api.declarations import DeclarationError, Pipeline, Stream
from sluice.api.formats import Avro, Protobuf, SchemaFormat, published, registration, schema_words, subject

SECONDS = 10.0
NO_SUBJECT, NO_VERSION, NOT_FOUND, CONFLICT, UNPROCESSABLE = 40401, 40402, 404, 409, 422
KIND = "application/vnd.schemaregistry.v1+json"
AVRO = "AVRO"
"""The type of a schema if the registry, or the one who asks, names none."""


class RegistryAwayError(Exception):
    """The registry does not answer as a registry does; the message names address and cause."""


class IncompatibleError(Exception):
    """The registry refuses a schema; the message names subject, reason and next step."""


def written_schemas(pipeline: Pipeline) -> dict[str, SchemaFormat]:
    """Return the format of each stream that a tier writes with a schema."""
    return {
        stream.name: stream.format
        for tier in pipeline.tiers
        for stream in tier.outputs
        if isinstance(stream.format, SchemaFormat)
    }


def with_ids(pipeline: Pipeline, ids: Mapping[str, int], address: str | None) -> Pipeline:
    """Return a pipeline whose streams know the registry, and their schema's id in it."""

    def known(stream: Stream) -> Stream:
        form = stream.format
        if not isinstance(form, SchemaFormat):
            return stream
        return replace(stream, format=published(form, address, ids.get(stream.name)))

    tiers = (
        replace(tier, inputs=tuple(map(known, tier.inputs)), outputs=tuple(map(known, tier.outputs)))
        for tier in pipeline.tiers
    )
    return replace(pipeline, tiers=tuple(tiers))


def check_address(pipeline: Pipeline, address: str | None) -> None:
    """Raise DeclarationError if the pipeline needs a registry, and the site has none."""
    written = written_schemas(pipeline)
    names = [
        stream.name
        for stream in pipeline.streams
        if isinstance(stream.format, Avro) or stream.name in written
    ]
    if names and address is None:
        message = (
            f"the records of {', '.join(names)} name their schema, but the site file names no schema "
            "registry; add its address: `schema_registry: http://HOST:8081`"
        )
        raise DeclarationError(message)


def refuse_incompatible(address: str, schemas: Mapping[str, SchemaFormat]) -> None:
    """Raise IncompatibleError if the registry would not accept a schema; nothing is changed."""
    refusals = {
        f'stream "{stream}": the registry refuses its {schema_words(form)} for the subject '
        f"{subject(stream)}: {why}": form
        for stream, form in schemas.items()
        if (why := _incompatibility(address, stream, form)) is not None
    }
    if refusals:
        raise IncompatibleError(_with_next_step(refusals))


def register(address: str, schemas: Mapping[str, SchemaFormat]) -> dict[str, int]:
    """Register each schema, and return its id; a schema that is registered already keeps its id."""
    ids = {}
    for stream, form in schemas.items():
        status, answer = _ask(address, f"/subjects/{subject(stream)}/versions", form)
        if status in {CONFLICT, UNPROCESSABLE}:
            message = f'stream "{stream}": {subject(stream)}: {answer.get("message", answer)}'
            raise IncompatibleError(_with_next_step({message: form}))
        ids[stream] = int(_good(address, status, answer)["id"])
    return ids


def _incompatibility(address: str, stream: str, form: SchemaFormat) -> str | None:
    path = f"/compatibility/subjects/{subject(stream)}/versions/latest?verbose=true"
    status, answer = _ask(address, path, form)
    if status == NOT_FOUND and answer.get("error_code") in {NO_SUBJECT, NO_VERSION}:
        return None
    if status == UNPROCESSABLE:
        return str(answer.get("message", answer))
    if _good(address, status, answer)["is_compatible"]:
        return None
    messages = [str(message) for message in answer.get("messages", [])]
    latest = _latest(address, stream)
    if (kind := latest.get("schemaType", AVRO)) != registration(form).get("schemaType", AVRO):
        return f"the subject has {kind} schemas; use a new stream"
    changes = differences(str(latest["schema"]), form)
    return "; ".join([*changes, *messages]) or "it is not compatible with the latest version"


def _latest(address: str, stream: str) -> dict[str, Any]:
    status, answer = _ask(address, f"/subjects/{subject(stream)}/versions/latest")
    return _good(address, status, answer)


def differences(old: str, new: SchemaFormat) -> list[str]:
    """Return what may make a schema incompatible with an older one, field by field. Pure."""
    match new:
        case Avro():
            return [*_avro_differences(old, new.schema)]
        case Protobuf():
            return [*_protobuf_differences(old, new)]


def _avro_differences(old: str, new: str) -> Iterator[str]:
    fields, old_fields = (
        {field["name"]: field for field in json.loads(text)["fields"]} for text in (new, old)
    )
    for name, field in fields.items():
        if name not in old_fields and "default" not in field:
            yield f"the new field {name} has no default"
    for name in sorted(old_fields.keys() - fields):
        yield f"the field {name} is gone"
    for name, field in fields.items():
        if name in old_fields and field["type"] != old_fields[name]["type"]:
            was = json.dumps(old_fields[name]["type"])
            yield f"the field {name} is {json.dumps(field['type'])}, and was {was}"


def _protobuf_differences(old: str, new: Protobuf) -> Iterator[str]:
    """Compare two files, if the registry returns the old one as it got it, and not as text."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto  # noqa: PLC0415 — few have Protobuf
    from google.protobuf.message import DecodeError  # noqa: PLC0415 — likewise

    try:
        old_file = FileDescriptorProto.FromString(base64.b64decode(old, validate=True))
    except (ValueError, DecodeError):
        return
    new_file = FileDescriptorProto.FromString(new.descriptor.file.serialized_pb)
    old_messages, messages = (dict(_messages(file.message_type)) for file in (old_file, new_file))
    for name, old_message in old_messages.items():
        if name not in messages:
            yield f"the message {name} is gone"
            continue
        fields, old_fields = (
            {field.number: field for field in each.field} for each in (messages[name], old_message)
        )
        for number in sorted(fields.keys() | old_fields):
            yield from _field_differences(f"{name}.", old_fields.get(number), fields.get(number))


def _messages(messages: Iterable[Any], outer: str = "") -> Iterator[tuple[str, Any]]:
    for message in messages:
        yield outer + message.name, message
        yield from _messages(message.nested_type, f"{outer}{message.name}.")


def _field_differences(prefix: str, old: Any, new: Any) -> Iterator[str]:
    if new is None:
        yield f"the field {prefix}{old.name} is gone; reserve its name and its number {old.number}"
    elif old is None:
        if new.label == new.LABEL_REQUIRED:
            yield f"the new field {prefix}{new.name} is required"
    elif (before := _described(old)) != (now := _described(new)):
        yield f"the field {new.number} of {prefix[:-1]} is {now}, and was {before}"


def _described(field: Any) -> str:
    label, kind = (
        enum.Name(value).partition("_")[2].lower()
        for enum, value in ((field.Label, field.label), (field.Type, field.type))
    )
    return f"{label} {field.type_name.removeprefix('.') or kind} {field.name}".removeprefix("optional ")


_ADVICE = {
    Avro: "keep each field that has no default, give each new field a default",
    Protobuf: "keep the number, the type and the name of each field, reserve those of a removed field",
}


def _with_next_step(refusals: Mapping[str, SchemaFormat]) -> str:
    lines = "\n".join(refusals)
    advice = "; ".join(
        text for kind, text in _ADVICE.items() if any(isinstance(form, kind) for form in refusals.values())
    )
    return (
        f"{lines}\nnothing was published; {advice}, then run `sluice publish` again; for an incompatible "
        "schema, use a new stream"
    )


def _good(address: str, status: int, answer: dict[str, Any]) -> dict[str, Any]:
    if status != http.client.OK:
        message = (
            f"the schema registry {address} answers {status}: {answer.get('message', answer)}; correct "
            "`schema_registry` in the site file, or repair the registry, then run `sluice publish` again"
        )
        raise RegistryAwayError(message)
    return answer


def _ask(address: str, path: str, form: SchemaFormat | None = None) -> tuple[int, dict[str, Any]]:
    """Send a schema, or ask without one; return the status and the answer."""
    body = None if form is None else json.dumps(registration(form)).encode()
    request = urllib.request.Request(f"{address}{path}", body, {"Content-Type": KIND, "Accept": KIND})  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as response:  # noqa: S310 - site_file checks it
            return response.status, _object(response.read())
    except urllib.error.HTTPError as error:
        return error.code, _object(error.read())
    except (OSError, http.client.HTTPException) as error:
        message = (
            f"the schema registry {address} does not answer ({error}), so nothing was published; start it, "
            "or correct `schema_registry` in the site file, then run `sluice publish` again"
        )
        raise RegistryAwayError(message) from error


def _object(body: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(body)
    except ValueError:
        answer = None
    return answer if isinstance(answer, dict) else {"message": body[:200].decode(errors="replace")}
