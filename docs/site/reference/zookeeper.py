"""The reference of the nodes in ZooKeeper, from their paths and from the table of rights."""

import ast
import inspect
from collections.abc import Iterator

from docs.site.reference.text import attribute_docstrings, code, table
from sluice_ops.model import access, paths


def page() -> str:
    """Return the page: one table of all nodes."""
    rows = [(code(path), text, _writers(path)) for path, text in sorted(nodes())]
    return (
        "# Which nodes does Sluice keep in ZooKeeper?\n\n"
        "The nodes below lie under the chroot of the site. Every client may read them. A role makes and "
        "writes its own nodes only; the role `admin` may do everything. A name in backticks and "
        "brackets, such as `TierWanted`, is the model of the node's content.\n\n"
        "Example: `/tiers/counts/owner` names the incarnation that owns the tier `counts`.\n\n"
        + table(("node", "content", "made or written by"), rows)
    )


def nodes() -> Iterator[tuple[str, str]]:
    """Yield the path of each node with its description."""
    for name, text in attribute_docstrings(ast.parse(inspect.getsource(paths)).body):
        value = getattr(paths, name)
        if isinstance(value, str) and value.startswith("/"):
            yield value, text
    for _, function in inspect.getmembers(paths, inspect.isfunction):
        signature = inspect.signature(function)
        if signature.return_annotation is str:
            yield function(*(f"<{name}>" for name in signature.parameters)), inspect.getdoc(function) or ""


def _writers(path: str) -> str:
    roles = {role for each in paths.TRAIL_ROLES for role in access.changers(path.replace("<role>", each))}
    return ", ".join(sorted(roles or {access.Role.ADMIN}))
