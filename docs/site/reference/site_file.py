"""The reference of the site file, from the pydantic models that read it."""

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from datetime import date
from enum import StrEnum
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from docs.site.reference.text import attribute_docstrings, code, escaped
from sluice_ops.cli.projects import TEMPLATE
from sluice_ops.site.site_file import Site

_WORDS: Mapping[Any, str] = {
    SecretStr: "text",
    str: "text",
    int: "whole number",
    float: "number",
    bool: "true or false",
    date: "date",
    NoneType: "none",
}
_BOUNDS = {
    "ge": "at least",
    "gt": "more than",
    "le": "at most",
    "lt": "less than",
    "min_length": "length at least",
}


def page() -> str:
    """Return the page: an example, then every key of the whole file and of its parts."""
    example = textwrap.indent((TEMPLATE / "site.yaml").read_text(), "    ")
    sections = "\n".join(_section(path, model) for path, model in models(Site))
    return (
        "# Which keys may the site file have?\n\n"
        "`site.yaml` needs `pipeline` and `hosts`; every other key has a default. An unknown key is an "
        "error that names the key. `sluice doctor` checks the file.\n\n"
        "Example: the file that `sluice init` makes.\n\n"
        f"{example}\n{sections}"
    )


def _section(path: str, model: type[BaseModel]) -> str:
    title = f"Keys of {code(path)}" if path else "Keys of the file"
    keys = "".join(
        f"### {code(f'{path}.{name}' if path else name)}\n\n*{_facts(field, text)}*\n\n{escaped(text)}\n\n"
        for name, field, text in fields(model)
    )
    return f"## {title}\n\n{escaped(inspect.cleandoc(model.__doc__ or ''))}\n\n{keys}"


def models(model: type[BaseModel], path: str = "") -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield a model and those of its fields at any depth, each with its path in the file."""
    yield path, model
    for name, field in model.model_fields.items():
        inner = f"{path}.{name}" if path else name
        for below, found in _inner(field.annotation):
            yield from models(found, inner + below)


def _inner(annotation: Any) -> Iterator[tuple[str, type[BaseModel]]]:
    origin, parts = get_origin(annotation), get_args(annotation)
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        yield "", annotation
    elif origin is dict:
        yield from ((f".NAME{below}", model) for below, model in _inner(parts[1]))
    elif origin in {tuple, frozenset}:
        yield from ((f"[]{below}", model) for below, model in _inner(parts[0]))
    elif origin in {UnionType, Union}:
        for part in parts:
            yield from _inner(part)


def fields(model: type[BaseModel]) -> Iterator[tuple[str, FieldInfo, str]]:
    """Yield the fields of a model, each with its docstring."""
    texts: dict[str, str] = {}
    for each in (base for base in reversed(model.__mro__) if base.__module__.startswith("sluice")):
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(each))).body
        texts |= attribute_docstrings(tree.body) if isinstance(tree, ast.ClassDef) else {}
    yield from ((name, field, texts.get(name, "")) for name, field in model.model_fields.items())


def _facts(field: FieldInfo, text: str) -> str:
    """Return type, bounds and default of a field; a docstring may tell the default better."""
    bounds = [
        f"{word} {value:g}"
        for constraint in field.metadata
        for name, word in _BOUNDS.items()
        if (value := getattr(constraint, name, None)) is not None
    ]
    default = [] if "Default:" in text else [default_of(field)]
    return ", ".join([words(field.annotation), *bounds, *default])


def words(annotation: Any) -> str:
    """Return a type in words."""
    origin, parts = get_origin(annotation), get_args(annotation)
    inner = [words(part) for part in parts if part not in {NoneType, Ellipsis} and origin is not Literal]
    if origin is Literal:
        return " or ".join(code(part) for part in parts)
    if inspect.isclass(annotation) and issubclass(annotation, StrEnum):
        return " or ".join(code(member.value) for member in annotation)
    if origin is dict:
        return f"mapping from a name to: {inner[1]}"
    if origin in {tuple, frozenset}:
        return f"list of: {inner[0]}"
    if origin in {UnionType, Union}:
        return " or ".join(dict.fromkeys(inner))
    return inner[0] if origin is Annotated else _WORDS.get(annotation, "mapping")


def default_of(field: FieldInfo) -> str:
    """Return the default of a field in words."""
    if field.is_required():
        return "required"
    default = field.get_default(call_default_factory=True, validated_data={})
    if isinstance(default, BaseModel):
        default = default.model_dump(mode="json", exclude_none=True)
    if isinstance(default, StrEnum):
        default = default.value
    if default in (None, (), {}, ""):
        return "default none"
    written = yaml.safe_dump([*default] if isinstance(default, tuple) else default, default_flow_style=True)
    return f"default {code(written.split(chr(10))[0])}"
