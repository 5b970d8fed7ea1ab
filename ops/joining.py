"""How a host joins: by a token that works once. `sluice token` makes it, `sluice agent --token-file` uses it.

What the host needs (the endpoints file, the credentials of agent and driver, and the passwords of Kafka's and PostgreSQL's `driver`)
waits in the channel, sealed with a key that is in the token alone. Who opens it takes it away before it is used, as the agent that it
then is: a second one finds nothing.
"""

import os
import secrets
import tempfile
import time
from pathlib import Path
from typing import Annotated

import structlog
from cryptography.fernet import Fernet, InvalidToken
from pydantic import AfterValidator, ValidationError

from ops import endpoints
from ops.brokers import brokers, signed
from ops.channel import Channel, ConflictError, Write, trail
from ops.database import users_of
from ops.files import write_private
from ops.model import paths
from ops.model.access import Credential, Role, Tls
from ops.model.resources import Frozen
from ops.model.streams import User
from ops.model.trail import Entry, Outcome

log = structlog.get_logger()

HELD = (Role.AGENT, Role.DRIVER)
"""What a host's processes are."""


class JoinError(Exception):
    """The host cannot join with this token; the message says why, and what to do."""


class Token(Frozen):
    """The token file: a secret until it was used."""

    zookeeper: Annotated[str, AfterValidator(endpoints.ensemble)]
    tls: Tls | None = None
    name: str
    key: str


class Sealed(Frozen):
    """`joining/<name>`: what a host needs, readable with the token's key only."""

    until: float
    data: str


class Bundle(Frozen):
    """What is sealed."""

    endpoints: str
    """The endpoints file, as it is."""
    credentials: dict[Role, str]
    kafka: str | None = None
    """The file with the password of Kafka's user `driver`, where brokers ask for one."""
    postgres: str | None = None
    """The file with the password of PostgreSQL's role of drivers, where there are roles."""


def make(where: endpoints.Endpoints, seconds: float) -> Token:
    """Seal what a host needs, for so long; what nobody has opened in its time is taken away."""
    passwords = {role: found.password for role in HELD if (found := where.needed(role)) is not None and found.password is not None}
    if where.access is None or not passwords:
        message = f"{endpoints.file()} names no roles, so there is nothing to join by; `sluice access --make` makes them"
        raise JoinError(message)
    key, name = Fernet.generate_key(), secrets.token_hex(8)
    kept = brokers(where.kafka_as(User.DRIVER)).kept
    kafka = None if kept is None else kept.read_text()
    where.postgres_as(Role.DRIVER)  # to say it now, where the file is not here
    users = users_of(where.postgres)
    postgres = None if users is None else (users / Role.DRIVER).read_text()
    # what an earlier version has in the file beyond what is known, a password of Airflow, stays here
    bundle = Bundle(endpoints=where.model_dump_json(exclude_none=True), credentials=passwords, kafka=kafka, postgres=postgres)
    sealed = Sealed(until=time.time() + seconds, data=Fernet(key).encrypt(bundle.model_dump_json(exclude_none=True).encode()).decode())
    with Channel(where.zookeeper, where.needed(Role.ADMIN)) as channel:
        for old in channel.children(paths.JOINING):
            before = channel.read(paths.joining(old), Sealed)
            if before is None or before.value.until < time.time():
                channel.delete(paths.joining(old))
        told = Entry(at=time.time(), by=trail.me(), what=f"token {name} for a host that joins", outcome=Outcome.DONE)
        channel.multi([Write(paths.joining(name), sealed, None), trail.write(Role.OPERATOR, told)])
    return Token(zookeeper=where.zookeeper, tls=where.access.tls, name=name, key=key.decode())


def join(file: Path) -> None:
    """Use a token, and remove its file; where the host has joined already, nothing is done."""
    if not file.exists():
        if endpoints.file().exists():
            return
        message = f"{file} is not there, and neither is {endpoints.file()}: `sluice token` makes a token"
        raise JoinError(message)
    try:
        token = Token.model_validate_json(file.read_bytes())
    except (ValidationError, OSError) as error:
        message = f"{file} is no token that can be read by user {os.geteuid()}: `sluice token` makes one"
        raise JoinError(message) from error
    endpoints.refuse_unreadable(token.tls)
    bundle, where = _take(token)
    write_private(endpoints.file(), bundle.endpoints)
    for role, password in bundle.credentials.items():
        write_private(where.credentials / role, password + "\n")
    kept = brokers(signed(endpoints.load().kafka, User.DRIVER)).kept
    if kept is not None and bundle.kafka is not None:
        write_private(kept, bundle.kafka)
    users = users_of(endpoints.load().postgres)
    if users is not None and bundle.postgres is not None:
        write_private(users / Role.DRIVER, bundle.postgres)
    file.unlink()
    log.info("joined", endpoints=str(endpoints.file()), credentials=str(where.credentials))


def _take(token: Token) -> tuple[Bundle, endpoints.Access]:
    """Open what is sealed and take it away."""
    nobody = Credential(Role.AGENT, "", {}, tls=token.tls)
    gone = "this token was used, or its time is over: `sluice token` makes another"
    with Channel(token.zookeeper, nobody) as channel:
        found = channel.read(paths.joining(token.name), Sealed)
    if found is None or found.value.until < time.time():
        raise JoinError(gone)
    try:
        bundle = Bundle.model_validate_json(Fernet(token.key).decrypt(found.value.data.encode()))
    except (InvalidToken, ValueError) as error:
        message = "this token does not open what waits for it in the channel: `sluice token` makes another"
        raise JoinError(message) from error
    access = endpoints.Endpoints.model_validate_json(bundle.endpoints).access
    if access is None:
        raise JoinError(gone)
    agent = Credential(Role.AGENT, str(access.credentials), access.roles, bundle.credentials[Role.AGENT], token.tls)
    _refuse_unless_writable(endpoints.file().parent, access.credentials)
    with Channel(token.zookeeper, agent) as channel:
        try:
            channel.multi([Write(paths.joining(token.name), None, found.version)])
        except ConflictError as error:
            raise JoinError(gone) from error
    return bundle, access


def _refuse_unless_writable(*folders: Path) -> None:
    """Look before the token is used up."""
    for folder in folders:
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            message = f"{folder} cannot be written by user {os.geteuid()} ({error.strerror}): make it this user's; the token is still good"
            raise JoinError(message) from error
