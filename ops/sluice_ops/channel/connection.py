"""kazoo's client with three changes: requests time out, nodes get access lists, errors reconnect.

`sluice_ops.model.access` has the table of rights from which the access lists are made.
"""

import threading
from collections.abc import Mapping
from functools import cache
from typing import Any

from kazoo.client import KazooClient, TransactionRequest
from kazoo.exceptions import ConnectionLoss
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.handlers.utils import AsyncResult
from kazoo.hosts import collect_hosts
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.states import KeeperState
from kazoo.security import ACL, OPEN_ACL_UNSAFE, make_acl

from sluice_ops.model import paths
from sluice_ops.model.access import Credential, Rights, Role, agent_of, host_of, rights

CALL_SECONDS = 10.0
"""How long one request may take before the connection counts as lost."""


class Answer(AsyncResult):  # type: ignore[misc]  # kazoo has no types
    """The answer to a request, awaited for at most 10 s.

    kazoo itself would wait without a limit, also for a request that is queued during an outage.
    """

    def __init__(self, handler: "Handler") -> None:
        super().__init__(handler, threading.Condition, ConnectionLoss)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:  # noqa: FBT001 - kazoo's API
        """Return the answer; raise ConnectionLoss after 10 s without one."""
        return super().get(block, CALL_SECONDS if timeout is None else timeout)

    def set_exception(self, exception: BaseException) -> None:
        """Set an error as the answer.

        kazoo raises RuntimeError for an answer to another request: that becomes ConnectionLoss.
        """
        super().set_exception(
            ConnectionLoss(str(exception)) if type(exception) is RuntimeError else exception
        )


class Handler(SequentialThreadingHandler):  # type: ignore[misc]  # likewise
    """kazoo's threads, with a shorter time to connect."""

    def __init__(self, servers: int) -> None:
        """Divide the time to connect, which is the session's, by the number of servers."""
        super().__init__()
        self._servers = servers

    def create_connection(self, *address: Any, timeout: float, **options: Any) -> Any:
        """Connect to a server.

        kazoo would spend the whole session's time on a server whose network drops all packets.
        """
        return super().create_connection(*address, timeout=timeout / self._servers, **options)

    def async_result(self) -> Answer:
        """Return the answer of a new request."""
        return Answer(self)


class Loop(ConnectionHandler):  # type: ignore[misc]  # likewise
    """kazoo's connection loop, which reconnects after an unexpected answer.

    kazoo's own loop would end, and the process would have no channel until its restart.
    """

    def _connect_attempt(self, *arguments: Any) -> Any:
        try:
            return super()._connect_attempt(*arguments)
        except Exception:  # noqa: BLE001 - kazoo has logged the error and closed the connection
            # The same state as after a lost connection.
            self.client._session_callback(KeeperState.CONNECTING)  # noqa: SLF001
            return None


class Connection(KazooClient):  # type: ignore[misc]  # likewise
    """The connection of one role; without a credential, a connection to a tree without access
    lists.
    """

    def __init__(self, hosts: str, credential: Credential | None, **settings: Any) -> None:
        known = credential is not None and credential.password is not None
        auth = (
            [("digest", f"{credential.role}:{credential.password}")]
            if credential is not None and known
            else []
        )
        own = None if credential is None else credential.own
        if own is not None:
            auth.append(("digest", f"{agent_of(own.host)}:{own.password}"))
        servers, _ = collect_hosts(hosts)
        super().__init__(
            hosts=hosts,
            handler=Handler(len(servers)),
            auth_data=auth or None,
            **settings,
            **_tls_options(credential),
        )
        self._connection = Loop(self, self._conn_retry.copy(), logger=self.logger)
        self._credential = credential
        self._agents: Mapping[str, str] = {} if own is None else {own.host: own.known_as}
        self._joiners: Mapping[str, str] = {}

    def know(self, agents: Mapping[str, str], joiners: Mapping[str, str]) -> None:
        """Set the digests of the hosts' agents, and of the hosts' join tokens.

        For an agent without a digest, access lists use the role's credential. For a token without a
        digest, they use nothing.
        """
        self._agents, self._joiners = agents, joiners

    def acl(self, path: str) -> list[ACL]:
        """Return the right access list of the node at a path."""
        agent, joiner = self._agents.get(host_of(path) or ""), self._joiners.get(paths.joining_of(path) or "")
        own = {
            role: known_as
            for role, known_as in ((Role.AGENT, agent), (Role.JOINER, joiner))
            if known_as is not None
        }
        return (
            OPEN_ACL_UNSAFE
            if self._credential is None
            else access_list(tuple({**self._credential.ids, **own}.items()), rights(path))
        )

    def create_async(
        self, path: str, value: bytes = b"", acl: Any = None, *flags: Any, **options: Any
    ) -> Any:
        """Create a node with its access list.

        `acl` is ignored: kazoo passes a child's access list on to the parents that it creates.
        """
        del acl
        return super().create_async(path, value, self.acl(path), *flags, **options)

    def transaction(self) -> "Transaction":
        """Begin a request of several writes."""
        return Transaction(self)


class Transaction(TransactionRequest):  # type: ignore[misc]  # likewise
    """A request of several writes, which creates nodes with their access lists."""

    def create(self, path: str, value: bytes = b"", acl: Any = None, *flags: Any, **options: Any) -> None:
        """Add the creation of a node; `acl` is ignored."""
        del acl
        super().create(path, value, self.client.acl(path), *flags, **options)


def _tls_options(credential: Credential | None) -> dict[str, Any]:
    if credential is None or credential.tls is None:
        return {}
    tls = credential.tls
    return {
        "use_ssl": True,
        "check_hostname": True,
        "ca": tls.ca,
        "certfile": tls.certificate,
        "keyfile": tls.key,
    }


@cache
def access_list(ids: tuple[tuple[Role, str], ...], granted: Rights) -> list[ACL]:
    """Return ZooKeeper's access list: all may read, the admin may do everything, roles as granted.

    `ids` has the digest of each role.
    """
    entries = [make_acl("world", "anyone", read=True)]
    for role, known_as in ids:
        if role is Role.ADMIN:
            entries.append(make_acl("digest", known_as, all=True))
        elif role in granted.write | granted.create | granted.delete:
            allowed = {
                "write": role in granted.write,
                "create": role in granted.create,
                "delete": role in granted.delete,
            }
            entries.append(make_acl("digest", known_as, **allowed))
    return entries
