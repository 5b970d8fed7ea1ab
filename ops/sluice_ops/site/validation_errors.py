"""What pydantic found wrong in what a person wrote, in words: the key, what is wrong, what was written, and which keys there are.

Used where the site file is read, by the CLI and by Airflow's forms.
"""

import re
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

_SHOWN = 40
"""Characters of a value that are repeated; a longer one is not what a person mistyped."""
_SECRET = re.compile(r"webhook|smtp|email|endpoint|postgres|password|secret|token|credential", re.IGNORECASE)
"""Keys whose value may hold an address with a password, or is nobody else's business."""

_LIST, _KEYS = "write a list, such as [a, b]", "write keys and values below it"
_FORMS = {
    **dict.fromkeys(("tuple_type", "list_type", "set_type", "frozen_set_type"), _LIST),
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), _KEYS),
    "path_type": "write the path of a file or folder",
    "too_short": "there is nothing in it: write one at least, or leave the key out",
}
"""What pydantic says in the words of Python's types."""


def explain(error: ValidationError, model: type[BaseModel]) -> list[str]:
    """Say each thing that is wrong in a line of its own; `model` is what was read."""
    return [_line(item, model) for item in error.errors()]


def _line(item: ErrorDetails, model: type[BaseModel]) -> str:
    path = [part for part in item["loc"] if part != "[key]"]
    said = item["msg"].removeprefix("Value error, ")
    if item["type"] == "extra_forbidden" and path:
        said = _unknown(str(path[-1]), sorted(_at(model, path[:-1]).model_fields))
    elif item["type"] != "value_error":
        said = _FORMS.get(item["type"], said) + _value(item["input"], path)
    return ": ".join(filter(None, (".".join(str(part) for part in path), said)))


def _unknown(key: str, known: list[str]) -> str:
    near = get_close_matches(key, known, 1)
    return (
        f"there is no such key{f', did you mean {near[0]}?' if near else ';'} known here: {', '.join(known)}"
    )


def _value(value: object, path: list[Any]) -> str:
    """Repeat a plain value that is short and nothing secret; a refusal of our own names its value by itself."""
    short = value is None or (
        isinstance(value, str | int | float) and len(str(value)) <= _SHOWN and "@" not in str(value)
    )
    return f"; it is {value!r}" if short and not any(_SECRET.search(str(part)) for part in path) else ""


def _at(model: type[BaseModel], path: list[Any]) -> type[BaseModel]:
    """Return the model that a path leads to; numbers and names of its own are passed over."""
    for part in path:
        field = model.model_fields.get(str(part))
        model = next(_models(field.annotation), model) if field is not None else model
    return model


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models(inner)
