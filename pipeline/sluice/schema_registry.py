"""The schema registry: publishing asks it whether schemas are compatible, and which ids they have.

Any registry with Confluent's interface will do. Executors ask it on their own, for the schemas that
records name: `pipeline/sluice/records/AvroReader.java`.
"""

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sluice.api.declarations import DeclarationError, Pipeline, Stream
from sluice.api.formats import Avro, PublishedAvro, subject

SECONDS = 10.0
NO_SUBJECT, NO_VERSION, NOT_FOUND, CONFLICT, UNPROCESSABLE = 40401, 40402, 404, 409, 422
KIND = "application/vnd.schemaregistry.v1+json"


class RegistryAwayError(Exception):
    """The registry does not answer as a registry does; the message names address and cause."""


class IncompatibleError(Exception):
    """The registry refuses a schema; the message names subject, reason and next step."""


def written_schemas(pipeline: Pipeline) -> dict[str, str]:
    """Return the Avro schema of each stream that a tier writes."""
    return {
        stream.name: stream.format.schema
        for tier in pipeline.tiers
        for stream in tier.outputs
        if isinstance(stream.format, Avro)
    }


def with_ids(pipeline: Pipeline, ids: Mapping[str, int], address: str | None) -> Pipeline:
    """Return a pipeline whose Avro streams know the registry, and their schema's id in it."""

    def known(stream: Stream) -> Stream:
        form = stream.format
        if not isinstance(form, Avro):
            return stream
        return replace(stream, format=PublishedAvro(form.schema, address, ids.get(stream.name)))

    tiers = (
        replace(tier, inputs=tuple(map(known, tier.inputs)), outputs=tuple(map(known, tier.outputs)))
        for tier in pipeline.tiers
    )
    return replace(pipeline, tiers=tuple(tiers))


def check_address(pipeline: Pipeline, address: str | None) -> None:
    """Raise DeclarationError if the pipeline has Avro streams, and the site has no registry."""
    names = [stream.name for stream in pipeline.streams if isinstance(stream.format, Avro)]
    if names and address is None:
        message = (
            f"the records of {', '.join(names)} are Avro, but the site file names no schema registry; "
            "add its address: `schema_registry: http://HOST:8081`"
        )
        raise DeclarationError(message)


def refuse_incompatible(address: str, schemas: Mapping[str, str]) -> None:
    """Raise IncompatibleError if the registry would not accept a schema; nothing is changed."""
    refusals = [
        f'stream "{stream}": the registry refuses its Avro schema for the subject {subject(stream)}: {why}'
        for stream, schema in schemas.items()
        if (why := _incompatibility(address, stream, schema)) is not None
    ]
    if refusals:
        message = "\n".join(refusals)
        raise IncompatibleError(_with_next_step(message))


def register(address: str, schemas: Mapping[str, str]) -> dict[str, int]:
    """Register each schema, and return its id; a schema that is registered already keeps its id."""
    ids = {}
    for stream, schema in schemas.items():
        status, answer = _ask(address, f"/subjects/{subject(stream)}/versions", schema)
        if status in {CONFLICT, UNPROCESSABLE}:
            message = f'stream "{stream}": {subject(stream)}: {answer.get("message", answer)}'
            raise IncompatibleError(_with_next_step(message))
        ids[stream] = int(_good(address, status, answer)["id"])
    return ids


def _incompatibility(address: str, stream: str, schema: str) -> str | None:
    path = f"/compatibility/subjects/{subject(stream)}/versions/latest?verbose=true"
    status, answer = _ask(address, path, schema)
    if status == NOT_FOUND and answer.get("error_code") in {NO_SUBJECT, NO_VERSION}:
        return None
    if status == UNPROCESSABLE:
        return str(answer.get("message", answer))
    if _good(address, status, answer)["is_compatible"]:
        return None
    messages = [str(message) for message in answer.get("messages", [])]
    changes = differences(_latest(address, stream), schema)
    return "; ".join([*changes, *messages]) or "it is not compatible with the latest version"


def _latest(address: str, stream: str) -> str:
    status, answer = _ask(address, f"/subjects/{subject(stream)}/versions/latest")
    return str(_good(address, status, answer)["schema"])


def differences(old: str, new: str) -> list[str]:
    """Return what may make a schema incompatible with an older one, field by field. Pure."""
    fields, old_fields = (
        {field["name"]: field for field in json.loads(text)["fields"]} for text in (new, old)
    )
    return [
        *(
            f"the new field {name} has no default"
            for name, field in fields.items()
            if name not in old_fields and "default" not in field
        ),
        *(f"the field {name} is gone" for name in sorted(old_fields.keys() - fields)),
        *(
            f"the field {name} is {json.dumps(field['type'])}, and was {json.dumps(old_fields[name]['type'])}"
            for name, field in fields.items()
            if name in old_fields and field["type"] != old_fields[name]["type"]
        ),
    ]


def _with_next_step(refusals: str) -> str:
    return (
        f"{refusals}\nnothing was published; keep each field that has no default, give each new field a "
        "default, then run `sluice publish` again; for an incompatible schema, use a new stream"
    )


def _good(address: str, status: int, answer: dict[str, Any]) -> dict[str, Any]:
    if status != http.client.OK:
        message = (
            f"the schema registry {address} answers {status}: {answer.get('message', answer)}; correct "
            "`schema_registry` in the site file, or repair the registry, then run `sluice publish` again"
        )
        raise RegistryAwayError(message)
    return answer


def _ask(address: str, path: str, schema: str | None = None) -> tuple[int, dict[str, Any]]:
    """Send a schema, or ask without one; return the status and the answer."""
    body = None if schema is None else json.dumps({"schema": schema}).encode()
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
