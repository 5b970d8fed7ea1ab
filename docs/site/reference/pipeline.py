"""The reference of what a pipeline imports, from the source of the public names of `sluice`."""

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from importlib import import_module
from typing import Any

from pydantic import BaseModel

import sluice
from docs.site.reference.text import attribute_docstrings, code, escaped, table

GROUPS: Mapping[str, tuple[str, ...]] = {
    "Declarations": ("Pipeline", "Tier", "Stream", "State", "Quantum", "JobTable", "Transform"),
    "Values of a tier": ("Kind", "Mode", "Delivery", "Standby"),
    "Groupings": ("Local", "Shuffle", "Fields", "All", "Global", "Direct", "Grouping"),
    "Formats": ("Avro", "Protobuf", "Bytes"),
    "Sinks": (
        "Once",
        "Totals",
        "Latest",
        "ParquetFiles",
        "JsonFiles",
        "DeltaTable",
        "KafkaTopic",
        "SqlTable",
        "Post",
        "Sinks",
    ),
    "Functions of a transform": ("joined",),
    "Backpressure": ("Watermarks", "Lag"),
    "Hooks": ("Hooks",),
    "A sink of your own": (
        "Sink",
        "Rows",
        "Written",
        "Absorbed",
        "Unfit",
        "Marks",
        "first_seen",
        "SinkAwayError",
    ),
    "Errors": ("DeclarationError",),
}
"""Title of a section → its names, in the order in which an author needs them."""
TO_OVERRIDE = {"Hooks", "Sink"}
"""Classes whose methods a pipeline overrides."""
WIDTH = 90
"""A longer call has one argument on each line."""
_TYPES = {"CoreCount": "float", "Mebibytes": "int | str", "How": "Literal['inner', 'left', 'right']"}
"""Internal names of types → the types that a pipeline gives."""
EXAMPLE = """\
from sluice import Delivery, Kind, Once, Pipeline, Quantum, Stream, Tier

ORDERS = Stream("orders", "id string, item string, count bigint")
LIST = Once("order_list", {"id": "text", "item": "text", "count": "bigint"}, archive="orders")
list_tier = Tier(
    "list",
    Kind.OUTBOUND,
    (ORDERS,),
    lambda orders: orders,
    sink=LIST,
    delivery=Delivery.EXACTLY_ONCE,
    quantum=Quantum(cpu=1, memory="750m"),
)
"""


def page() -> str:
    """Return the page: each public name with its signature and its fields."""
    example = textwrap.indent(EXAMPLE, "    ")
    sections = "".join(f"## {title}\n\n{''.join(map(_section, names))}" for title, names in GROUPS.items())
    return (
        "# What does `from sluice import …` give to a pipeline?\n\n"
        "The names below are all; a pipeline imports nothing else of Sluice. [Pipelines](../pipelines.md) "
        "says how they work together.\n\n"
        "Example: a tier that writes each order into the table `order_list`, and as Parquet files. "
        "`Once` adds the columns `written_at`, `origin` and `batch`.\n\n"
        f"{example}\n{sections}"
    )


def _section(name: str) -> str:
    value = getattr(sluice, name)
    if inspect.isfunction(value):
        node = _tree(value)
        described = _call(name, [ast.unparse(node.args).replace("'", "")]) + _text(node)
    elif not isinstance(value, type) or inspect.getmodule(value) is None:
        described = _alias(name)
    elif issubclass(value, Enum):
        rows = [(code(f"{name}.{member.name}"), _documented(value).get(member.name, "")) for member in value]
        described = f"{_text(_tree(value))}{table(('value', 'meaning'), rows)}\n"
    else:
        described = _class(value)
    return f"### {code(name)}\n\n{described}"


def _tree(value: Any) -> Any:
    return ast.parse(textwrap.dedent(inspect.getsource(value))).body[0]


def _text(node: Any) -> str:
    return f"{escaped(text)}\n\n" if (text := ast.get_docstring(node)) else ""


def _call(name: str, arguments: Sequence[str]) -> str:
    call = f"{name}({', '.join(arguments)})"
    if len(call) > WIDTH:
        call = f"{name}(\n{''.join(f'    {each},{chr(10)}' for each in arguments)})"
    for internal, plain in _TYPES.items():
        call = call.replace(f": {internal}", f": {plain}")
    return f"```python\n{call}\n```\n\n"


def _alias(name: str) -> str:
    """Describe an alias of a type by its value and by the docstring after it."""
    imports = [
        node for node in ast.walk(ast.parse(inspect.getsource(sluice))) if isinstance(node, ast.ImportFrom)
    ]
    (module,) = (node.module for node in imports if name in {each.name for each in node.names})
    body = ast.parse(inspect.getsource(import_module(str(module)))).body
    (value,) = (
        node.value for node in body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name
    )
    text = dict(attribute_docstrings(body))[name]
    return f"```python\n{name} = {ast.unparse(value)}\n```\n\n{escaped(text)}\n\n"


def _own(value: type) -> list[Any]:
    """Return the syntax trees of a class and of its bases in Sluice, the bases first."""
    return [_tree(each) for each in reversed(value.mro()) if each.__module__.startswith("sluice")]


def _documented(value: type) -> dict[str, str]:
    """Return the docstring of each attribute of a class and of its bases."""
    return {name: text for tree in _own(value) for name, text in attribute_docstrings(tree.body)}


def _class(value: type) -> str:
    trees = _own(value)
    arguments = [*_arguments(trees)]
    texts = _documented(value)
    by_name = ["*"] if issubclass(value, BaseModel) else []
    made = [
        node.args
        for tree in trees
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name == "__init__"
    ]
    signature = (
        [ast.unparse(made[-1]).removeprefix("self, ")]
        if made
        else [*by_name, *(written for _, written in arguments)]
    )
    accepted = {node.arg for node in ast.walk(made[-1]) if isinstance(node, ast.arg)} if made else {*texts}
    rows = [(code(name), texts[name]) for name, _ in arguments if texts.get(name) and name in accepted]
    listed = f"{table(('argument', 'meaning'), rows)}\n" if rows else ""
    methods = "".join(_methods(trees[-1])) if value.__name__ in TO_OVERRIDE else ""
    return _call(value.__name__, signature) + _text(trees[-1]) + listed + methods


def _arguments(trees: list[Any]) -> Iterator[tuple[str, str]]:
    """Yield the fields of a class that are arguments, each with its type and default."""
    for tree in trees:
        for node in tree.body:
            if isinstance(node, ast.AnnAssign) and not ast.unparse(node.annotation).startswith("ClassVar"):
                name, default = ast.unparse(node.target), _default(node.value)
                annotation = ast.unparse(node.annotation).replace("'", "")
                yield name, f"{name}: {annotation}" + ("" if default is None else f" = {default}")


def _default(value: ast.expr | None) -> str | None:
    """Return the default of a field as code; None: the field is required."""
    if not isinstance(value, ast.Call) or ast.unparse(value.func) not in {"field", "Field"}:
        return None if value is None else ast.unparse(value)
    arguments = {keyword.arg: keyword.value for keyword in value.keywords}
    if factory := arguments.get("default_factory"):
        return ast.unparse(factory.body) if isinstance(factory, ast.Lambda) else f"{ast.unparse(factory)}()"
    return ast.unparse(arguments["default"]) if "default" in arguments else None


def _methods(tree: ast.ClassDef) -> Iterator[str]:
    """Yield each method that a subclass may override, and each property."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            arguments = ast.unparse(node.args).removeprefix("self").removeprefix(", ")
            returned = "" if node.returns is None else f" -> {ast.unparse(node.returns)}"
            if any(ast.unparse(each) == "property" for each in node.decorator_list):
                head = f"{node.name}: {ast.unparse(node.returns or ast.Constant(None))}"
            else:
                head = f"def {node.name}({arguments}){returned}"
            yield f"```python\n{head}\n```\n\n{_text(node)}"
