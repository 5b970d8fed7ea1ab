"""How a host joins with a token that works once.

`sluice token` makes it, `sluice agent --token-file` uses it.

The channel holds the host's bundle: the endpoints file, the credentials of agent and driver, and
the passwords of the user `driver` for Kafka and PostgreSQL. The bundle is sealed with two keys: the
token's and the controller's. The controller gives it to the first machine that claims it in time,
by ZooKeeper's clock (decision 53).
"""

import os
import secrets
import socket
import time
from pathlib import Path
from typing import Annotated

import structlog
from pydantic import AfterValidator, Field, ValidationError

from sluice_ops.channel import Channel, NotAllowedError, Write, trail_queue
from sluice_ops.channel.client import Waker
from sluice_ops.channel.subtree import deletion_order
from sluice_ops.model import paths
from sluice_ops.model.access import Credential, HostCredential, Role, Tls, id_of
from sluice_ops.model.assignment import HostFacts
from sluice_ops.model.joining import Answer, Claim, ControllerKey, Sealed, another, is_expired, shown
from sluice_ops.model.kafka_access import User
from sluice_ops.model.resources import Frozen
from sluice_ops.model.trail import Entry, Outcome
from sluice_ops.model.wording import page
from sluice_ops.operations.sealing import (
    SealError,
    derive,
    lock,
    private_key,
    public_key,
    seal,
    unlock,
    unseal,
)
from sluice_ops.site import endpoints
from sluice_ops.site.brokers import brokers, with_user
from sluice_ops.site.database import users_of
from sluice_ops.site.files import write_private

log = structlog.get_logger()

HOST_ROLES = (Role.AGENT, Role.DRIVER)
"""The roles of a host's processes."""
KEY_BYTES = 32
ANSWER_SECONDS = 30.0
"""How long a host waits for the controller's answer. A new leader is elected within this time."""
LOOK_SECONDS = 1.0
"""The longest sleep between two looks for the answer."""


class JoinError(Exception):
    """The host cannot join with this token; the message says why, and what to do next."""


class Token(Frozen):
    """The token file: a secret until the host is registered."""

    zookeeper: Annotated[str, AfterValidator(endpoints.check_zookeeper)]
    tls: Tls | None = None
    host: str
    roles: dict[Role, str]
    """The id of each role in access lists."""
    key: str = Field(repr=False)

    @property
    def credential(self) -> Credential:
        """Return the credential that proves to ZooKeeper that its holder has this token."""
        password = derive(self.key, f"channel of {self.host}")
        ids = {**self.roles, Role.JOINER: id_of(Role.JOINER, password)}
        return Credential(Role.JOINER, "the token", ids, password, self.tls)


class Bundle(Frozen):
    """The files that a host needs."""

    endpoints: str
    """The content of the endpoints file."""
    credentials: dict[Role, str]
    kafka: str | None = None
    """The password file of Kafka's user `driver`, if the brokers ask for passwords."""
    postgres: str | None = None
    """The content of the password file of PostgreSQL's role for drivers, if there are roles."""


def make(where: endpoints.Endpoints, host: str, seconds: float) -> Token:
    """Seal the bundle of a host and make a token that works for `seconds`.

    An earlier token of the host no longer works, and expired tokens are deleted. JoinError if the
    host is registered, or no controller has published its key.
    """
    bundle, access = _bundle(where)
    token = Token(
        zookeeper=where.zookeeper,
        tls=access.tls,
        host=host,
        roles=access.roles,
        key=secrets.token_urlsafe(KEY_BYTES),
    )
    known_as = token.credential.ids[Role.JOINER]
    locked = lock(bundle.model_dump_json(exclude_none=True), token.key, f"bundle for {host}")
    with Channel(where.zookeeper, where.required_credential(Role.ADMIN)) as channel:
        if (facts := channel.read(paths.host(host), HostFacts)) is not None:
            message = (
                f"{host} is registered at {facts.value.address} and needs no token. "
                "If the machine is new or has lost its files, stop its agent, then run: "
                f"sluice access --forget {host}"
            )
            raise JoinError(message)
        controller = channel.read(paths.CONTROLLER_KEY, ControllerKey)
        if controller is None:
            message = (
                "no controller has published its key; start one (`systemctl start "
                "sluice-controller@c1`), then make the token again"
            )
            raise JoinError(message)
        sealed = Sealed(
            seconds=seconds,
            known_as=known_as,
            data=seal(locked, controller.value.public, f"token for {host}"),
        )
        channel.kazoo.know({}, {host: known_as})
        entry = Entry(
            at=time.time(),
            by=trail_queue.cli_user(),
            what=f"token for {host}, which is to join",
            outcome=Outcome.DONE,
        )
        channel.multi(
            [
                *spending(channel, host),
                Write(paths.joining(host), sealed, None),
                trail_queue.write(Role.OPERATOR, entry),
            ]
        )
        _take_away_expired(channel, channel.made_at(paths.joining(host)))
    return token


def spending(channel: Channel, host: str) -> list[Write]:
    """Return the writes that delete the token of a host; empty if there is none."""
    path = paths.joining(host)
    return [Write(node, None, None) for node in deletion_order(channel, path)] if channel.exists(path) else []


def join(file: Path, own: HostCredential) -> None:
    """Fetch the bundle with a token and write its files; do nothing if this was done before.

    The token is spent when the host is registered. Until then, this machine may join again: it is
    known by the host's `own` credential. JoinError says why the host cannot join.
    """
    if not file.exists():
        if endpoints.file().exists():
            return
        message = f"neither {file} nor {endpoints.file()} exists: {another(own.host)}"
        raise JoinError(message)
    token = _read(file)
    if token.host != own.host:
        message = (
            f"{file} is a token for {token.host}, but this agent is to serve {own.host}: {another(own.host)}"
        )
        raise JoinError(message)
    endpoints.refuse_unreadable(token.tls)
    purpose = f"answer to {own.host}"
    private = private_key(own.password, purpose)
    with Channel(token.zookeeper, token.credential) as channel:
        facts = channel.read(paths.host(own.host), HostFacts)
        if facts is not None and facts.value.known_as == own.known_as:
            return
        if facts is not None:
            message = (
                f"the token for {own.host} was used: {own.host} is registered at {facts.value.address}, "
                "with another credential than this machine's. "
                f"If this machine is to be {own.host} now, an operator runs `sluice access --forget "
                f"{own.host}`; then {another(own.host)}"
            )
            raise JoinError(message)
        _claim(channel, own.host, public_key(private))
        data = _answer(channel, own.host)
    try:
        bundle = Bundle.model_validate_json(
            unlock(unseal(data, private, purpose), token.key, f"bundle for {own.host}")
        )
    except (SealError, ValidationError) as error:
        message = f"{file} does not open the bundle in the channel for {own.host}: {another(own.host)}"
        raise JoinError(message) from error
    _write(bundle, own.host)
    log.info(
        "the host has its files and can join; the token is spent when the host is registered",
        host=own.host,
        endpoints=str(endpoints.file()),
    )


def _bundle(where: endpoints.Endpoints) -> tuple[Bundle, endpoints.Access]:
    """Collect the files of a host."""
    credentials = {
        role: credential for role in HOST_ROLES if (credential := where.required_credential(role)) is not None
    }
    passwords = {
        role: credential.password
        for role, credential in credentials.items()
        if credential.password is not None
    }
    if where.access is None or not passwords:
        message = (
            f"{endpoints.file()} names no roles, so no token can be made; make the roles: "
            "sluice access --make"
        )
        raise JoinError(message)
    kafka_password = brokers(where.kafka_as(User.DRIVER)).password_file
    where.postgres_as(Role.DRIVER)  # fails here, at the operator, if the password file is missing
    postgres_users = users_of(where.postgres)
    bundle = Bundle(
        # fields of an earlier version that this version does not know, such as a password of
        # Airflow, are left out
        endpoints=where.model_dump_json(exclude_none=True),
        credentials=passwords,
        kafka=None if kafka_password is None else kafka_password.read_text(),
        postgres=None if postgres_users is None else (postgres_users / Role.DRIVER).read_text(),
    )
    return bundle, where.access


def _take_away_expired(channel: Channel, now: float | None) -> None:
    """Delete tokens that have expired by `now`, ZooKeeper's time.

    A claimed token waits for its host.
    """
    for host in channel.children(paths.JOINING):
        sealed, made_at = channel.read(paths.joining(host), Sealed), channel.made_at(paths.joining(host))
        answer = channel.read(paths.answer(host), Answer)
        is_claimed = answer is not None and answer.value.data is not None
        is_expired_now = sealed is None or (
            made_at is not None and now is not None and is_expired(sealed.value, made_at, now)
        )
        if is_expired_now and not is_claimed:
            channel.delete(paths.joining(host))


def _read(file: Path) -> Token:
    try:
        return Token.model_validate_json(file.read_bytes())
    except (ValidationError, OSError) as error:
        message = (
            f"{file} is no token, or user {os.geteuid()} cannot read it; an operator makes one: sluice token"
        )
        raise JoinError(message) from error


def _claim(channel: Channel, host: str, public: str) -> None:
    """Be the first machine to claim the token, or find that this machine has claimed it before."""
    if not channel.exists(paths.joining(host)):
        raise JoinError(_no_token(host))
    try:
        channel.create(paths.claim(host), Claim(public=public, machine=socket.gethostname()))
    except NotAllowedError as error:  # the token was replaced or deleted in between
        raise JoinError(_no_token(host)) from error
    claim, claimed_at = channel.read(paths.claim(host), Claim), channel.made_at(paths.claim(host))
    if claim is None or claimed_at is None:
        raise JoinError(_no_token(host))
    if claim.value.public != public:
        message = (
            f"the token for {host} was used at {shown(claimed_at)} by another machine, which calls itself "
            f"{claim.value.machine}. If that machine is not {host}, somebody has a copy: "
            f"change the credentials of agent and driver, see {page('Access', 'ZooKeeper')}. "
            f"{another(host)}; "
            "the used token then no longer works"
        )
        raise JoinError(message)


def _answer(channel: Channel, host: str) -> str:
    """Wait for the answer; JoinError after 30 seconds, or if the controller refuses."""
    waker, until = Waker(channel), time.monotonic() + ANSWER_SECONDS
    while (answer := channel.read(paths.answer(host), Answer, watch=True)) is None:
        if not channel.exists(paths.claim(host)):
            raise JoinError(_no_token(host))
        if time.monotonic() > until:
            message = (
                f"no controller has answered {host} for {ANSWER_SECONDS:.0f} s; "
                "check that one leads (`sluice status`), then start this agent again: "
                "the token still works for this machine"
            )
            raise JoinError(message)
        waker.wait(LOOK_SECONDS)
    if answer.value.data is None:
        raise JoinError(answer.value.refused or _no_token(host))
    return answer.value.data


def _no_token(host: str) -> str:
    return f"the token for {host} was used, has expired, or a later one has replaced it: {another(host)}"


def _write(bundle: Bundle, host: str) -> None:
    """Write the host's files, the endpoints file last: if it exists, all others do."""
    try:
        where = endpoints.Endpoints.model_validate_json(bundle.endpoints)
    except ValidationError as error:
        message = (
            f"the endpoints file for {host} is from another version of Sluice; "
            "install the version that made the token"
        )
        raise JoinError(message) from error
    files: dict[Path, str] = {}
    if where.access is not None:
        files |= {
            where.access.credentials / role: password + "\n" for role, password in bundle.credentials.items()
        }
    kafka_password, postgres_users = (
        brokers(with_user(where.kafka, User.DRIVER)).password_file,
        users_of(where.postgres),
    )
    if kafka_password is not None and bundle.kafka is not None:
        files[kafka_password] = bundle.kafka
    if postgres_users is not None and bundle.postgres is not None:
        files[postgres_users / Role.DRIVER] = bundle.postgres
    files[endpoints.file()] = bundle.endpoints
    for path, text in files.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_private(path, text)
        except OSError as error:
            message = (
                f"user {os.geteuid()} cannot write {path} ({error.strerror}); "
                "give this user the folder, then start the agent again: "
                "the token still works for this machine"
            )
            raise JoinError(message) from error
