"""The access lists of a whole tree, held against the table, and put right. For the admin: at a start of the platform, `sluice access`."""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from kazoo.exceptions import KazooException, NoAuthError, NoNodeError
from kazoo.interfaces import IAsyncResult
from pydantic import ValidationError

from sluice_ops.channel.client import UNDER_WAY, ChannelAwayError, NotAllowedError
from sluice_ops.channel.connection import Connection
from sluice_ops.model import paths
from sluice_ops.model.access import Role, agent_of, row_of
from sluice_ops.model.assignment import HostFacts
from sluice_ops.model.joining import Sealed

T = TypeVar("T")


def find_wrong(connection: Connection) -> list[str]:
    """Return the paths of all nodes whose access list is not that of the table."""
    return _asked(lambda: list(_wrong_paths(connection)))


def apply(connection: Connection) -> int:
    """Make the tree's roots, and give every node the access list of the table; return how many had another one."""

    def make() -> int:
        for root in ("/", *paths.ROOTS):
            connection.ensure_path(root)
        found = list(_wrong_paths(connection))
        for _ in _answers(found, lambda path: connection.set_acls_async(path, connection.acl(path))):
            pass
        return len(found)

    return _asked(make)


def find_unlisted(connection: Connection) -> list[str]:
    """Return the paths of all nodes that the table has no row for."""
    return _asked(lambda: [path for path in walk(connection) if row_of(path) is None])


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
    """Yield each host with how its agent says that it is known; what it says can be written by that agent alone, once it is."""
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
    """Yield each host that has a token with how whoever holds the token is known; the admin has written it."""
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


def _answers(paths: Sequence[str], ask: Callable[[str], IAsyncResult]) -> Iterator[tuple[str, Any]]:
    """Ask for each path, many under way together; a node that has gone meanwhile has no answer."""
    for begin in range(0, len(paths), UNDER_WAY):
        asked = [(path, ask(path)) for path in paths[begin : begin + UNDER_WAY]]
        for path, each in asked:
            try:
                yield path, each.get()
            except NoNodeError:
                continue


def _asked(request: Callable[[], T]) -> T:
    try:
        return request()
    except NoAuthError as error:
        message = "the tree's access lists can be set by their admin only, and the credential given is not the one that the tree knows"
        raise NotAllowedError(message) from error
    except KazooException as error:
        message = f"ZooKeeper is away: {error!r}"
        raise ChannelAwayError(message) from error
