"""Who may write what in the channel: one table, from which every node's access list is made, and against which it is checked.

Reading is open to whoever can connect: nothing in the channel is secret, and whoever is woken at night should need no password to look.
"""

import hashlib
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from sluice_ops.model import paths
from sluice_ops.model.resources import Frozen


class Role(StrEnum):
    """What kind of process it is, or who it speaks for."""

    CONTROLLER = "controller"
    AGENT = "agent"
    DRIVER = "driver"
    AUDIT = "audit"
    OPERATOR = "operator"
    """People at the command line, and runbooks."""
    PUBLISHER = "publisher"
    """Who declares tiers and releases their code."""
    ADMIN = "admin"
    """Who makes the tree and its access lists; it may do everything, and no process of Sluice runs with it."""
    JOINER = "joiner"
    """A host that has a token and no credential of its own yet. Each token is a credential of this role, for its host's node alone."""


KEPT = tuple(role for role in Role if role is not Role.JOINER)
"""Those whose credential is a file."""


PROCESSES = frozenset({Role.CONTROLLER, Role.AGENT, Role.DRIVER, Role.AUDIT})
"""Those that announce where their figures are."""


HOST = "{host}"
"""In a row of the table: a host's name. There, `agent` is the agent of that host, and no other."""


@dataclass(frozen=True)
class Rights:
    """Who may do what with one node; whoever is not named may read it, and the admin may do all."""

    write: frozenset[Role] = frozenset()
    create: frozenset[Role] = frozenset()
    """Make nodes right below it."""
    delete: frozenset[Role] = frozenset()
    """Delete nodes right below it."""


def _rights(*, write: str = "", create: str = "", delete: str = "") -> Rights:
    sets = (frozenset(Role(name) for name in names.split()) for names in (write, create, delete))
    return Rights(*sets)


TABLE: dict[str, Rights] = {
    "/": _rights(create="controller", delete="controller"),
    "/config": _rights(create="controller", delete="controller"),
    "/config/wanted": _rights(create="operator publisher controller"),
    "/config/wanted/*": _rights(write="operator publisher controller"),
    paths.LAYERS: _rights(write="controller"),
    "/hosts": _rights(create="agent", delete="operator"),
    f"/hosts/{HOST}": _rights(write="agent", create="agent controller", delete="agent operator"),
    f"/hosts/{HOST}/{paths.LIVE}": _rights(write="agent"),
    f"/hosts/{HOST}/{paths.RECORD}": _rights(write="controller"),
    "/assignments": _rights(create="controller", delete="operator"),
    "/assignments/*": _rights(write="controller"),
    "/observed": _rights(create="agent", delete="operator"),
    f"/observed/{HOST}": _rights(write="agent"),
    "/tiers": _rights(create="publisher"),
    "/tiers/*": _rights(write="publisher", create="controller audit", delete="audit"),
    "/tiers/*/owner": _rights(write="controller"),
    "/tiers/*/loss": _rights(write="audit"),
    "/tiers/*/incarnations": _rights(create="controller", delete="controller"),
    "/tiers/*/incarnations/*": _rights(write="controller", create="driver", delete="controller"),
    "/tiers/*/incarnations/*/report": _rights(write="driver"),
    paths.RELEASES: _rights(create="publisher", delete="publisher"),
    f"{paths.RELEASES}/*": _rights(),
    "/operations": _rights(create="operator controller", delete="controller"),
    "/operations/*": _rights(create="controller", delete="controller"),
    "/operations/*/journal": _rights(create="controller", delete="controller"),
    "/operations/*/journal/*": _rights(),
    "/operations/*/result": _rights(),
    "/changes": _rights(create="controller", delete="controller"),
    "/changes/*": _rights(write="controller"),
    paths.LOCK: _rights(write="controller"),
    "/controller": _rights(create="controller"),
    paths.LEADER: _rights(create="controller", delete="controller"),
    f"{paths.LEADER}/*": _rights(),
    paths.EPOCH: _rights(write="controller"),
    paths.CONTROLLER_STATUS: _rights(write="controller"),
    paths.SITE: _rights(write="controller"),
    paths.HOLDS: _rights(write="controller"),
    paths.CONTROLLER_KEY: _rights(write="controller"),
    paths.JOINING: _rights(delete="agent"),
    f"{paths.JOINING}/*": _rights(create="joiner", delete="agent"),
    f"{paths.JOINING}/*/{paths.CLAIM}": _rights(create="controller", delete="agent"),
    f"{paths.JOINING}/*/{paths.CLAIM}/{paths.ANSWER}": _rights(),
    paths.TRAIL: _rights(),
    **{f"{paths.TRAIL}/{role}": _rights(create=role, delete="audit") for role in paths.TRAIL_ROLES},
    **{f"{paths.TRAIL}/{role}/*": _rights() for role in paths.TRAIL_ROLES},
    paths.EXPORTERS: Rights(create=PROCESSES),
    f"{paths.EXPORTERS}/*": Rights(),
}
"""By the node's path below the chroot; `*` stands for one name. A path that is named in full goes before one with a `*`."""


_ROWS = [(row.split("/"), row) for row in TABLE if "*" in row or HOST in row]


def row_of(path: str) -> str | None:
    """Return the table's row for a path; None for one that it does not know, which is the admin's alone."""
    if path in TABLE:
        return path
    names = path.split("/")
    return next((row for parts, row in _ROWS if _fits(parts, names)), None)


def _fits(parts: list[str], names: list[str]) -> bool:
    return len(parts) == len(names) and all(
        part in {"*", HOST, name} for part, name in zip(parts, names, strict=True)
    )


def rights(path: str) -> Rights:
    """Return who may do what with the node at a path."""
    row = row_of(path)
    return Rights() if row is None else TABLE[row]


def host_of(path: str) -> str | None:
    """Return the host whose agent is meant where the node's rights name the agent; None: any host's."""
    row = (row_of(path) or "").split("/")
    return path.split("/")[row.index(HOST)] if HOST in row else None


def parent(path: str) -> str:
    """Return the path of the node above."""
    return path.rpartition("/")[0] or "/"


def changers(path: str) -> frozenset[Role]:
    """Return who may make the node at a path, or write to it."""
    return rights(path).write | rights(parent(path)).create


def removers(path: str) -> frozenset[Role]:
    """Return who may delete the node at a path."""
    return rights(parent(path)).delete


def id_of(name: str, password: str) -> str:
    """Return how ZooKeeper knows a role, or one host's agent, that has this password: no secret, for the password is long and random."""
    digest = hashlib.sha1(f"{name}:{password}".encode()).digest()  # noqa: S324 - it is ZooKeeper's choice
    return f"{name}:{b64encode(digest).decode()}"


def agent_of(host: str) -> str:
    """Return what ZooKeeper calls the agent of a host."""
    return f"{Role.AGENT}-{host}"


class Tls(Frozen):
    """How ZooKeeper is spoken to in private. Its certificate has to be made out for the name or the address that it is asked by."""

    ca: str
    """The file with the certificate of the authority that has signed it; those that the machine trusts anyway are taken too."""
    certificate: str | None = None
    """The file with this machine's own, where the server asks for one."""
    key: str | None = None
    """The file with its private key."""


@dataclass(frozen=True)
class Own:
    """What an agent proves with, beside its role, that it is that of its host."""

    host: str
    password: str = field(repr=False)

    @property
    def known_as(self) -> str:
        """How access lists know it."""
        return id_of(agent_of(self.host), self.password)


@dataclass(frozen=True)
class Credential:
    """What a process proves its role with, and how all roles are known in access lists."""

    role: Role
    folder: str
    """Where credentials are looked for."""
    ids: Mapping[Role, str]
    password: str | None = field(default=None, repr=False)
    """None: there is none here, and the process can only read."""
    tls: Tls | None = None
    """None: what is said, the password too, can be read on the way."""
    own: Own | None = None
    """The agent's of a host."""

    def refused(self, who: str) -> str:
        """Return why a request that needs the role `who` was refused."""
        mine = (
            f"this process has no credential of {self.role}"
            if self.password is None
            else f"this process is {self.role}"
        )
        return f"this needs the role {who}, but {mine}; credentials are looked for in {self.folder}"
