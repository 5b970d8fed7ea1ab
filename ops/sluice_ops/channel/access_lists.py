"""Compare all access lists of the channel's tree with the table of rights, and correct them.

The admin does this at the start of the platform, and with `sluice access`. The table is in
`sluice_ops.model.access`.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from kazoo.exceptions import KazooException, NoAuthError, NoNodeError
from kazoo.interfaces import IAsyncResult
from pydantic import ValidationError

from sluice_ops.channel.client import PIPELINED_REQUESTS, ChannelAwayError, NotAllowedError
from sluice_ops.channel.connection import Connection
from sluice_ops.model import paths
from sluice_ops.model.access import Role, agent_of, row_of
from sluice_ops.model.assignment import HostFacts
from sluice_ops.model.joining import Sealed

T = TypeVar("T")


def find_wrong(connection: Connection) -> list[str]:
    """Return the paths of all nodes whose access list differs from the table."""
    return _call(lambda: list(_wrong_paths(connection)))


def apply(connection: Connection) -> int:
    """Create the tree's roots, and correct all access lists; return how many were wrong."""

    def correct() -> int:
        for root in ("/", *paths.ROOTS):
            connection.ensure_path(root)
        wrong = list(_wrong_paths(connection))
        for _ in _answers(wrong, lambda path: connection.set_acls_async(path, connection.acl(path))):
            pass
        return len(wrong)

    return _call(correct)


def find_unlisted(connection: Connection) -> list[str]:
    """Return the paths of all nodes without a row in the table."""
    return _call(lambda: [path for path in walk(connection) if row_of(path) is None])


def walk(connection: Connection) -> Iterator[str]:
    """Yield the path of every node, level by level."""
    level = ["/"]
    while level:
        yield from level
        below = _answers(level, connection.get_children_async)
        level = [f"{path.rstrip('/')}/{name}" for path, names in below for name in sorted(names)]


def _wrong_paths(connection: Connection) -> Iterator[str]:
    connection.know(dict(_agents(connection)), dict(_joiners(connection)))
    for path, (acls, _) in _answers(list(walk(connection)), connection.get_acls_async):
        if set(acls) != set(connection.acl(path)):
            yield path


def _agents(connection: Connection) -> Iterator[tuple[str, str]]:
    """Yield each host and the digest of its agent's credential.

    Only the agent itself can write the digest, after its first write.
    """
    for _, names in _answers(("/hosts",), connection.get_children_async):
        for path, (data, _) in _answers([paths.host(name) for name in names], connection.get_async):
            host = path.rpartition("/")[2]
            try:
                known = HostFacts.model_validate_json(data, extra="ignore").known_as
            except ValidationError:
                continue
            if known is not None and _is_digest(agent_of(host), known):
                yield host, known


def _joiners(connection: Connection) -> Iterator[tuple[str, str]]:
    """Yield each host with a join token, and the token's digest, which the admin wrote."""
    for _, names in _answers((paths.JOINING,), connection.get_children_async):
        for path, (data, _) in _answers([paths.joining(name) for name in names], connection.get_async):
            try:
                known = Sealed.model_validate_json(data, extra="ignore").known_as
            except ValidationError:
                continue
            if _is_digest(Role.JOINER, known):
                yield path.rpartition("/")[2], known


def _is_digest(name: str, known_as: str) -> bool:
    return re.fullmatch(re.escape(name) + ":[A-Za-z0-9+/]{27}=", known_as) is not None


def _answers(paths: Sequence[str], send: Callable[[str], IAsyncResult]) -> Iterator[tuple[str, Any]]:
    """Send a request for each path, many in parallel; yield each path and its answer.

    Nodes that were deleted meanwhile are left out.
    """
    for begin in range(0, len(paths), PIPELINED_REQUESTS):
        requests = [(path, send(path)) for path in paths[begin : begin + PIPELINED_REQUESTS]]
        for path, request in requests:
            try:
                yield path, request.get()
            except NoNodeError:
                continue


def _call(request: Callable[[], T]) -> T:
    try:
        return request()
    except NoAuthError as error:
        message = (
            "ZooKeeper refuses to set access lists: only the admin may set them, "
            "and this process's credential is not the one that the lists name as admin"
        )
        raise NotAllowedError(message) from error
    except KazooException as error:
        message = f"ZooKeeper does not answer: {error!r}"
        raise ChannelAwayError(message) from error
