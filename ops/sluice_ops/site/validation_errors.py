"""Pydantic's errors as plain lines: the key, the error, the value, and the known keys.

Used for the site file, the endpoints file, the CLI and Airflow's forms.
"""

import re
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

_SHOWN = 40
"""The longest value that an error repeats, in characters; a longer value is not a typing error."""
_SECRET = re.compile(
    r"webhook|channels|smtp|email|endpoint|postgres|password|secret|token|credential", re.IGNORECASE
)
"""Keys whose values errors never repeat: they may contain a password or a person's address."""

_LIST, _KEYS = "write a list, such as [a, b]", "write keys and values below this key"
_TEXTS = {
    **dict.fromkeys(("tuple_type", "list_type", "set_type", "frozen_set_type"), _LIST),
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), _KEYS),
    "path_type": "write the path of a file or folder",
    "too_short": "the list is empty: write at least one item, or remove the key",
}
"""Error type of pydantic → the text that replaces pydantic's own, which names Python's types."""


def explain(error: ValidationError, model: type[BaseModel]) -> list[str]:
    """Return one line for each error; `model` is the class that was validated."""
    return [_line(item, model) for item in error.errors()]


def _line(item: ErrorDetails, model: type[BaseModel]) -> str:
    path = [part for part in item["loc"] if part != "[key]"]
    text = item["msg"].removeprefix("Value error, ")
    if item["type"] == "extra_forbidden" and path:
        text = _unknown_key(str(path[-1]), sorted(_model_at(model, path[:-1]).model_fields))
    elif item["type"] != "value_error":
        text = _TEXTS.get(item["type"], text) + _value(item["input"], path)
    return ": ".join(filter(None, (".".join(str(part) for part in path), text)))


def _unknown_key(key: str, known: list[str]) -> str:
    near = get_close_matches(key, known, 1)
    suggestion = f"did you mean {near[0]}? " if near else ""
    return f"unknown key; {suggestion}known keys: {', '.join(known)}"


def _value(value: object, path: list[Any]) -> str:
    """Return the value as the end of an error, if it is plain, short and not secret.

    Sluice's own validators (`value_error`) name the value themselves.
    """
    short = value is None or (
        isinstance(value, str | int | float) and len(str(value)) <= _SHOWN and "@" not in str(value)
    )
    return (
        f"; the value is {value!r}" if short and not any(_SECRET.search(str(part)) for part in path) else ""
    )


def _model_at(model: type[BaseModel], path: list[Any]) -> type[BaseModel]:
    """Return the model at a path; the path's list indexes and free names lead to no other model."""
    for part in path:
        field = model.model_fields.get(str(part))
        model = next(_models(field.annotation), model) if field is not None else model
    return model


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models(inner)
