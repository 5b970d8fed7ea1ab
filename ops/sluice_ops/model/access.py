"""The rights to write in the channel: one table, from which each node's access list is made and
checked.

Every client that can connect may read. The channel holds no secrets, so an operator can look
without a password.
"""

import hashlib
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from sluice_ops.model import paths
from sluice_ops.model.resources import Frozen


class Role(StrEnum):
    """The role of a process, which decides its rights."""

    CONTROLLER = "controller"
    AGENT = "agent"
    DRIVER = "driver"
    AUDIT = "audit"
    OPERATOR = "operator"
    """People at the command line, and runbooks."""
    PUBLISHER = "publisher"
    """Declares tiers and publishes their code."""
    SOURCE = "source"
    """Brings records from outside into a stream."""
    ADMIN = "admin"
    """Makes the tree and its access lists.

    It may do everything; no process of Sluice has this role.
    """
    JOINER = "joiner"
    """A host that has a token, but no credential of its own yet.

    Each token is a credential of this role, valid only for the node of its host.
    """


KEPT = tuple(role for role in Role if role is not Role.JOINER)
"""The roles that have their credential in a file."""


PROCESSES = frozenset({Role.CONTROLLER, Role.AGENT, Role.DRIVER, Role.AUDIT, Role.SOURCE})
"""The roles of processes that serve metrics."""


HOST = "{host}"
"""Stands for a host's name in a row of the table.

In such a row, `agent` is only the host's own agent.
"""


@dataclass(frozen=True)
class Rights:
    """The roles with rights on one node. All roles may read it, and the admin may do everything."""

    write: frozenset[Role] = frozenset()
    create: frozenset[Role] = frozenset()
    """May make children of the node."""
    delete: frozenset[Role] = frozenset()
    """May delete children of the node."""


def _rights(*, write: str = "", create: str = "", delete: str = "") -> Rights:
    sets = (frozenset(Role(name) for name in names.split()) for names in (write, create, delete))
    return Rights(*sets)


TABLE: dict[str, Rights] = {
    "/": _rights(create="controller", delete="controller"),
    "/config": _rights(create="controller", delete="controller"),
    "/config/wanted": _rights(create="operator publisher controller"),
    "/config/wanted/*": _rights(write="operator publisher controller"),
    paths.LAYERS: _rights(write="controller"),
    "/hosts": _rights(create="agent", delete="operator controller"),
    f"/hosts/{HOST}": _rights(write="agent", create="agent controller", delete="agent operator controller"),
    f"/hosts/{HOST}/{paths.LIVE}": _rights(write="agent"),
    f"/hosts/{HOST}/{paths.RECORD}": _rights(write="controller"),
    f"/hosts/{HOST}/{paths.LOGS}": _rights(create="agent operator", delete="agent operator controller"),
    f"/hosts/{HOST}/{paths.LOGS}/*": _rights(),
    "/assignments": _rights(create="controller", delete="operator controller"),
    "/assignments/*": _rights(write="controller"),
    "/observed": _rights(create="agent", delete="operator controller"),
    f"/observed/{HOST}": _rights(write="agent"),
    "/tiers": _rights(create="publisher"),
    "/tiers/*": _rights(write="publisher", create="controller audit", delete="audit"),
    "/tiers/*/owner": _rights(write="controller"),
    "/tiers/*/loss": _rights(write="audit"),
    "/tiers/*/incarnations": _rights(create="controller", delete="controller"),
    "/tiers/*/incarnations/*": _rights(write="controller", create="driver", delete="controller"),
    "/tiers/*/incarnations/*/report": _rights(write="driver"),
    "/tiers/*/incarnations/*/load": _rights(write="driver"),
    paths.RELEASES: _rights(create="publisher", delete="publisher"),
    f"{paths.RELEASES}/*": _rights(),
    "/operations": _rights(create="operator controller", delete="controller"),
    "/operations/*": _rights(create="controller", delete="controller"),
    "/operations/*/journal": _rights(create="controller", delete="controller"),
    "/operations/*/journal/*": _rights(),
    "/operations/*/result": _rights(),
    "/changes": _rights(create="controller", delete="controller"),
    "/changes/*": _rights(write="controller", create="operator", delete="controller"),
    f"/changes/*/{paths.APPROVAL}": _rights(),
    paths.LOCK: _rights(write="controller"),
    "/controller": _rights(create="controller"),
    paths.LEADER: _rights(create="controller", delete="controller"),
    f"{paths.LEADER}/*": _rights(),
    paths.EPOCH: _rights(write="controller"),
    paths.CONTROLLER_STATUS: _rights(write="controller"),
    paths.CONTROLLER_LOGS: _rights(create="controller operator", delete="controller operator"),
    f"{paths.CONTROLLER_LOGS}/*": _rights(),
    paths.SITE: _rights(write="controller"),
    paths.HOLDS: _rights(write="controller"),
    paths.SCALER: _rights(write="controller", create="controller"),
    paths.SCALER_MEMORY: _rights(write="controller"),
    paths.SCALER_MODES: _rights(write="operator"),
    "/batch": _rights(create="controller"),
    paths.BATCH_JOBS: _rights(create="operator", delete="operator controller"),
    f"{paths.BATCH_JOBS}/*": _rights(write="operator"),
    paths.BATCH_GRANTS: _rights(write="controller"),
    paths.BATCH_RECLAIMS: _rights(write="controller"),
    paths.ALERTS: _rights(write="controller"),
    paths.ALERT_REQUESTS: _rights(write="operator"),
    paths.CONTROLLER_KEY: _rights(write="controller"),
    paths.REBOOTS: _rights(create="operator", delete="operator"),
    f"{paths.REBOOTS}/*": _rights(write="operator"),
    paths.UPGRADES: _rights(create="operator"),
    f"{paths.UPGRADES}/*": _rights(write="operator"),
    paths.DRAINS: _rights(create="operator"),
    f"{paths.DRAINS}/*": _rights(write="operator"),
    paths.DECOMMISSIONED: _rights(create="controller", delete="agent"),
    f"{paths.DECOMMISSIONED}/*": _rights(),
    paths.INSTANCES: _rights(create="operator", delete="operator"),
    f"{paths.INSTANCES}/*": _rights(write="operator"),
    paths.JOINING: _rights(delete="agent"),
    f"{paths.JOINING}/*": _rights(create="joiner", delete="agent"),
    f"{paths.JOINING}/*/{paths.CLAIM}": _rights(create="controller", delete="agent"),
    f"{paths.JOINING}/*/{paths.CLAIM}/{paths.ANSWER}": _rights(),
    paths.SOURCES: _rights(create="source", delete="source operator"),
    f"{paths.SOURCES}/*": _rights(write="source", create="source", delete="source operator"),
    f"{paths.SOURCES}/*/{paths.LIVE}": _rights(write="source"),
    f"{paths.SOURCES}/*/{paths.TAKEN}": _rights(write="source"),
    paths.TRAIL: _rights(),
    **{f"{paths.TRAIL}/{role}": _rights(create=role, delete="audit") for role in paths.TRAIL_ROLES},
    **{f"{paths.TRAIL}/{role}/*": _rights() for role in paths.TRAIL_ROLES},
    paths.EXPORTERS: Rights(create=PROCESSES),
    f"{paths.EXPORTERS}/*": Rights(),
}
"""By path below the chroot. `*` stands for one name. A full path comes before a path with `*`."""


_ROWS = [(row.split("/"), row) for row in TABLE if "*" in row or HOST in row]


def row_of(path: str) -> str | None:
    """Return the table's row for a path; None for an unknown path, which only the admin
    may change.
    """
    if path in TABLE:
        return path
    names = path.split("/")
    return next((row for parts, row in _ROWS if _fits(parts, names)), None)


def _fits(parts: list[str], names: list[str]) -> bool:
    return len(parts) == len(names) and all(
        part in {"*", HOST, name} for part, name in zip(parts, names, strict=True)
    )


def rights(path: str) -> Rights:
    """Return the rights on the node at a path."""
    row = row_of(path)
    return Rights() if row is None else TABLE[row]


def host_of(path: str) -> str | None:
    """Return the host of the only agent with rights on a node; None: any host's agent."""
    row = (row_of(path) or "").split("/")
    return path.split("/")[row.index(HOST)] if HOST in row else None


def parent(path: str) -> str:
    """Return the path of the node above."""
    return path.rpartition("/")[0] or "/"


def changers(path: str) -> frozenset[Role]:
    """Return the roles that may make or write the node at a path."""
    return rights(path).write | rights(parent(path)).create


def removers(path: str) -> frozenset[Role]:
    """Return the roles that may delete the node at a path."""
    return rights(parent(path)).delete


def id_of(name: str, password: str) -> str:
    """Return the id in access lists of a role, or of a host's agent, with this password.

    The id is no secret, because the password is long and random.
    """
    digest = hashlib.sha1(f"{name}:{password}".encode()).digest()  # noqa: S324 - it is ZooKeeper's choice
    return f"{name}:{b64encode(digest).decode()}"


def agent_of(host: str) -> str:
    """Return the user name of a host's agent in ZooKeeper."""
    return f"{Role.AGENT}-{host}"


class Tls(Frozen):
    """TLS to ZooKeeper.

    The server's certificate has to name the host name or address of the connection.
    """

    ca: str
    """The file with the certificate of the server's authority.

    The machine's own authorities count too.
    """
    certificate: str | None = None
    """The file with this machine's certificate, if the server requires one."""
    key: str | None = None
    """The file with the private key of this machine's certificate."""


@dataclass(frozen=True)
class HostCredential:
    """The credential with which an agent proves that it is the agent of its host."""

    host: str
    password: str = field(repr=False)

    @property
    def known_as(self) -> str:
        """The agent's id in access lists."""
        return id_of(agent_of(self.host), self.password)


@dataclass(frozen=True)
class Credential:
    """The credential of a process, and the ids of all roles in access lists."""

    role: Role
    folder: str
    """The folder in which credentials are looked for."""
    ids: Mapping[Role, str]
    password: str | None = field(default=None, repr=False)
    """None: the process has no credential here and can only read."""
    tls: Tls | None = None
    """None: the connection is not encrypted, so others can read the password on the way."""
    own: HostCredential | None = None
    """The credential of a host's agent."""

    def refused(self, who: str) -> str:
        """Return why a request that needs the role `who` was refused."""
        mine = (
            f"this process has no credential of {self.role}"
            if self.password is None
            else f"this process is {self.role}"
        )
        return f"this needs the role {who}, but {mine}; credentials are looked for in {self.folder}"
