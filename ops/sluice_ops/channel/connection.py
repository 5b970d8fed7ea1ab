"""kazoo's client, as the channel and kazoo's own recipes need it: each answer has its time, and each node the access list of the table."""

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
    """What a request is answered with. kazoo itself would wait for ever, as for one that is queued while ZooKeeper is away."""

    def __init__(self, handler: "Handler") -> None:
        """Wait for it."""
        super().__init__(handler, threading.Condition, ConnectionLoss)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:  # noqa: FBT001 - kazoo's signature
        """Return it; one that does not come is a connection that is lost."""
        return super().get(block, CALL_SECONDS if timeout is None else timeout)

    def set_exception(self, exception: BaseException) -> None:
        """Take an error for the answer; a RuntimeError is kazoo's word for one that is another request's."""
        super().set_exception(
            ConnectionLoss(str(exception)) if type(exception) is RuntimeError else exception
        )


class Handler(SequentialThreadingHandler):  # type: ignore[misc]  # likewise
    """kazoo's threads."""

    def __init__(self, servers: int) -> None:
        """Divide the time to connect, the session's, among the servers."""
        super().__init__()
        self._servers = servers

    def create_connection(self, *where: Any, timeout: float, **more: Any) -> Any:
        """Connect to a server. kazoo would spend the whole session's time on one whose network drops all packets."""
        return super().create_connection(*where, timeout=timeout / self._servers, **more)

    def async_result(self) -> Answer:
        """Begin to wait for an answer."""
        return Answer(self)


class Loop(ConnectionHandler):  # type: ignore[misc]  # likewise
    """kazoo's loop of connections. It would end at an answer that it does not understand, and the process have no channel ever after."""

    def _connect_attempt(self, *where: Any) -> Any:
        try:
            return super()._connect_attempt(*where)
        except Exception:  # noqa: BLE001 - kazoo has logged it, and has closed the connection
            self.client._session_callback(KeeperState.CONNECTING)  # noqa: SLF001 - as after a connection that is lost
            return None


class Connection(KazooClient):  # type: ignore[misc]  # likewise
    """A connection of one role; without a credential, of nobody, in a tree that is open to all."""

    def __init__(self, hosts: str, credential: Credential | None, **settings: Any) -> None:
        """Prepare it."""
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
            **_private(credential),
        )
        self._connection = Loop(self, self._conn_retry.copy(), logger=self.logger)
        self._credential = credential
        self._agents: Mapping[str, str] = {} if own is None else {own.host: own.known_as}
        self._joiners: Mapping[str, str] = {}

    def know(self, agents: Mapping[str, str], joiners: Mapping[str, str]) -> None:
        """Learn how access lists know the agents of hosts, and those who have their tokens.

        Where an agent is not known, the role's credential stands for it; for a token nothing does.
        """
        self._agents, self._joiners = agents, joiners

    def acl(self, path: str) -> list[ACL]:
        """Return what the access list of the node at a path has to be."""
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

    def create_async(self, path: str, value: bytes = b"", acl: Any = None, *flags: Any, **more: Any) -> Any:
        """Create a node. `acl` is of no account: kazoo passes a child's on to the parents that it makes for it."""
        del acl
        return super().create_async(path, value, self.acl(path), *flags, **more)

    def transaction(self) -> "Transaction":
        """Begin a request of several parts."""
        return Transaction(self)


class Transaction(TransactionRequest):  # type: ignore[misc]  # likewise
    """All or nothing; what it creates has the table's access lists, too."""

    def create(self, path: str, value: bytes = b"", acl: Any = None, *flags: Any, **more: Any) -> None:
        """Add a node that is to be created."""
        del acl
        super().create(path, value, self.client.acl(path), *flags, **more)


def _private(credential: Credential | None) -> dict[str, Any]:
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
    """Write rights as ZooKeeper has them."""
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
