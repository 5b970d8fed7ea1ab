"""One process's connection to the control channel.

While ZooKeeper does not answer, each request fails at once. kazoo would queue a request and send it
later, when it may be wrong. A process that only follows the channel continues with the values that
it read last.
"""

import threading
import warnings
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import structlog
from kazoo.exceptions import (
    BadVersionError,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    RolledBackError,
    RuntimeInconsistency,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.interfaces import IAsyncResult
from kazoo.protocol.states import KazooState, WatchedEvent
from pydantic import BaseModel, ValidationError

from sluice_ops.channel.connection import Connection
from sluice_ops.channel.interrupts import defer_interrupts
from sluice_ops.model import paths
from sluice_ops.model.access import Credential, Role, changers, host_of, removers, rights
from sluice_ops.model.wording import listed

log = structlog.get_logger()

M = TypeVar("M", bound=BaseModel)

PIPELINED_REQUESTS = 1000
"""How many requests are sent before the first answer is awaited."""
LARGEST_BYTES = 1_000_000
"""The most bytes that one request may write.

ZooKeeper (jute.maxbuffer, 1 MiB) answers a larger request by closing the connection, which would
look like an outage.
"""
SESSION_SECONDS = 6.0
"""The session timeout: a process that is silent for this long loses its ephemeral nodes."""


class ChannelAwayError(Exception):
    """ZooKeeper does not answer. Temporary: decide nothing, stop nothing, retry."""


class NotAllowedError(ChannelAwayError):
    """ZooKeeper refuses a change by this process; the message names the role that may make it.

    Not temporary. A process that follows the channel continues as in an outage, and records flow. A
    person who requested the change gets the message.
    """


class TooLargeError(ChannelAwayError):
    """A request is too large for ZooKeeper; the message names the node.

    Not temporary. A process that follows the channel continues as in an outage.
    """


class ConflictError(Exception):
    """The node has changed since it was read. Temporary: read again and decide again."""


@dataclass(frozen=True)
class Read(Generic[M]):
    """The value of a node, and its version."""

    value: M
    version: int
    """The version that guards writes to the node."""
    made: int
    """ZooKeeper's number of the write that created the node; it grows with each write."""


ANY_VERSION = -1
"""The version that replaces any version of a node. For nodes of one writer."""


@dataclass(frozen=True)
class Write:
    """One guarded write of a `multi`.

    `version` None creates the node; a number replaces only that version. `value` None deletes the
    node.
    """

    path: str
    value: BaseModel | None
    version: int | None

    @cached_property
    def data(self) -> bytes:
        """The JSON of the value; empty for a deletion."""
        return b"" if self.value is None else _json(self.value)


@dataclass(frozen=True)
class Guard:
    """A condition of a `multi`: the whole `multi` fails unless `path` has that version."""

    path: str
    version: int


class Channel:
    """Typed access to one pipeline's part of ZooKeeper."""

    def __init__(
        self, hosts: str, credential: Credential | None = None, *, session_seconds: float = SESSION_SECONDS
    ) -> None:
        """Prepare a connection to `hosts`: ZooKeeper's addresses and the pipeline's chroot.

        Without a credential, the channel can read, and can write nodes that have no access list.
        """
        self._client = Connection(
            hosts,
            credential,
            timeout=session_seconds,
            connection_retry={"max_tries": -1, "max_delay": 1.0},
            command_retry=None,
        )
        self._credential = credential
        self.hosts = hosts
        self._refused: set[str] = set()
        self._wakers: list[Callable[[], None]] = []
        self._followers: list[Callable[[str | None], None]] = []
        self._client.add_listener(self._on_state)

    # -- connection

    def start(self, seconds: float = 15.0) -> Self:
        """Connect, and create the tree's roots.

        Raise ChannelAwayError after `seconds` without a connection.
        """
        try:
            with warnings.catch_warnings():
                # The first process to connect creates the chroot, but not the chroot's parents.
                warnings.filterwarnings("ignore", message="No chroot path exists")
                self._client.start(timeout=seconds)
            for root in paths.ROOTS:
                self._client.ensure_path(root)
        except NoNodeError as error:
            self.stop()
            message = (
                f"ZooKeeper has no chroot {self.hosts} yet; the start of the platform creates the chroot"
            )
            raise ChannelAwayError(message) from error
        except NoAuthError as error:
            self.stop()
            message = (
                f"ZooKeeper at {self.hosts} lacks roots of the channel, which only the admin can create: "
                "`sluice access --apply`"
            )
            raise NotAllowedError(message) from error
        except (KazooTimeoutError, KazooException) as error:
            self._client.stop()
            message = f"ZooKeeper at {self.hosts} does not answer: {error}"
            raise ChannelAwayError(message) from error
        return self

    def stop(self) -> None:
        """Disconnect: ZooKeeper deletes the ephemeral nodes of this process at once."""
        with defer_interrupts():
            self._client.stop()
            self._client.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def connected(self) -> bool:
        """Whether ZooKeeper is connected, so that a request is sent and not queued."""
        return bool(self._client.state == KazooState.CONNECTED)

    @property
    def session(self) -> int | None:
        """The id of the ZooKeeper session; None before the first connection."""
        identity = self._client.client_id
        return int(identity[0]) if identity else None

    @property
    def kazoo(self) -> Connection:
        """The kazoo client, for kazoo's recipes (election, locks)."""
        return self._client

    def on_wake(self, waker: Callable[[], None]) -> None:
        """Have `waker` called after each change of a watched node or of the connection.

        kazoo's thread calls `waker`, so `waker` must not block.
        """
        self._wakers.append(waker)

    def on_change(self, follower: Callable[[str | None], None]) -> None:
        """Have `follower` called with the path of each changed node, before any waker.

        None means that any node may have changed. `follower` must not block.
        """
        self._followers.append(follower)

    def _on_state(self, _state: str) -> None:
        self._wake()

    def _wake(self, event: WatchedEvent | None = None) -> None:
        for follower in self._followers:
            follower(None if event is None else event.path)
        for waker in self._wakers:
            waker()

    # -- reading

    def read(self, path: str, model: type[M], *, watch: bool = False) -> Read[M] | None:
        """Return the value at `path`; None if the node is absent or its content is invalid.

        Invalid content is logged once.
        """
        return self.read_many((path,), model, watch=watch)[0]

    def sync(self, path: str) -> None:
        """Have the server apply all earlier writes, so that the next read is not older than this
        call.
        """
        self._call(lambda: self._client.sync_async(path).get())

    def read_many(self, paths: Sequence[str], model: type[M], *, watch: bool = False) -> list[Read[M] | None]:
        """Return the values at many paths, as `read` does, with requests sent in parallel."""
        answers = self._call(lambda: self._request_all(self._client.get_async, paths, watch=watch))
        return [self._parsed(path, answer, model) for path, answer in zip(paths, answers, strict=True)]

    def _request_all(
        self, send: Callable[..., IAsyncResult], paths: Sequence[str], *, watch: bool
    ) -> list[Any]:
        """Return the answer for each path, None for an absent node.

        With `watch`, the creation of an absent node is watched, too.
        """
        answers = self._request(send, paths, watch=watch)
        absent = [number for number, answer in enumerate(answers) if answer is None] if watch else []
        stats = self._request(self._client.exists_async, [paths[number] for number in absent], watch=True)
        for number, stat in zip(absent, stats, strict=True):
            if stat is not None:  # the node was created in between, so its watch is missing
                (answers[number],) = self._request_all(send, (paths[number],), watch=True)
        return answers

    def _request(self, send: Callable[..., IAsyncResult], paths: Sequence[str], *, watch: bool) -> list[Any]:
        answers: list[Any] = []
        for begin in range(0, len(paths), PIPELINED_REQUESTS):
            requests = [
                send(path, watch=self._wake if watch else None)
                for path in paths[begin : begin + PIPELINED_REQUESTS]
            ]
            for request in requests:
                try:
                    answers.append(request.get())
                except NoNodeError:
                    answers.append(None)
        return answers

    @property
    def refused(self) -> frozenset[str]:
        """The nodes whose content was invalid at the last read."""
        return frozenset(self._refused)

    def _parsed(self, path: str, answer: Any, model: type[M]) -> Read[M] | None:
        if answer is None:
            self._refused.discard(path)
            return None
        data, version, made = answer[0], answer[1].version, answer[1].czxid
        # An empty new node was created as the parent of another node; its writer comes later.
        if not data and version == 0 and rights(path).create:
            self._refused.discard(path)
            return None
        try:
            # Fields of a newer version are kept, so that a later write does not drop them.
            value = model.model_validate_json(data, extra="allow")
        except ValidationError as error:
            if path not in self._refused:
                self._refused.add(path)
                log.warning(
                    "a node of ZooKeeper has invalid content; this process continues with the last valid "
                    "value until the node is written again",
                    path=path,
                    error=str(error),
                )
            return None
        self._refused.discard(path)
        return Read(value, version, made)

    def children(self, path: str, *, watch: bool = False) -> list[str]:
        """Return the names of the nodes below `path`, sorted; none if `path` is absent."""
        return self.children_many((path,), watch=watch)[0]

    def children_many(self, paths: Sequence[str], *, watch: bool = False) -> list[list[str]]:
        """Return the names below many paths, as `children` does, with requests sent in parallel."""
        children = self._call(lambda: self._request_all(self._client.get_children_async, paths, watch=watch))
        return [sorted(names or ()) for names in children]

    def exists(self, path: str, *, watch: bool = False) -> bool:
        """Tell whether there is a node at `path`."""
        return self._stat(path, watch=watch) is not None

    def version(self, path: str) -> int | None:
        """Return the version of the node at `path`, even if its content is invalid; None without a
        node.
        """
        stat = self._stat(path)
        return None if stat is None else int(stat.version)

    def _stat(self, path: str, *, watch: bool = False) -> Any:
        """Return ZooKeeper's data about a node; None without a node."""
        return self._call(lambda: self._request(self._client.exists_async, (path,), watch=watch)[0])

    def made_at(self, path: str) -> float | None:
        """Return the creation time of the node at `path`; None without a node.

        Unit: seconds by ZooKeeper's clock.
        """
        stat = self._stat(path)
        return None if stat is None else float(stat.ctime) / 1000

    # -- writing

    def put(self, path: str, value: BaseModel, *, version: int | None = None) -> None:
        """Create or replace a node.

        With `version`, replace only that version; raise ConflictError if the node has another one.
        """
        write = Write(path, value, version)
        data = write.data

        def send() -> None:
            try:
                self._client.set_async(path, data, -1 if version is None else version).get()
            except NoNodeError:
                if version is not None:
                    raise
                try:
                    self._client.create_async(path, data, makepath=True).get()
                except NodeExistsError:
                    self._client.set_async(path, data).get()

        self._call(send, write)

    def create(self, path: str, value: BaseModel, *, ephemeral: bool = False, sequence: bool = False) -> bool:
        """Create a node and its parents; return False if the node exists already."""
        write = Write(path, value, None)

        def send() -> bool:
            answer = self._client.create_async(
                path, write.data, ephemeral=ephemeral, sequence=sequence, makepath=True
            )
            try:
                answer.get()
            except NodeExistsError:
                return False
            return True

        return self._call(send, write)

    def delete(self, path: str) -> None:
        """Delete a node and all nodes below it, if it exists."""

        def send() -> None:
            try:
                self._client.delete(path, recursive=True)
            except NoNodeError:
                return

        self._call(send, Write(path, None, None))

    def multi(self, writes: Sequence[Write | Guard]) -> None:
        """Do all writes or none; raise ConflictError if a guard or a version fails."""

        def send() -> None:
            failures = self._commit(writes)
            created = {
                write.path
                for write in writes
                if isinstance(write, Write) and write.version is None and write.value is not None
            }
            if any(path in created and isinstance(failure, NoNodeError) for path, failure in failures):
                # Parents are created only after the guards have held: a refused writer leaves no
                # node.
                for parent in sorted({path.rsplit("/", 1)[0] for path in created} - {""}):
                    self._client.ensure_path_async(parent).get()
                failures = self._commit(writes)
            if refusals := [failure for _, failure in failures if isinstance(failure, NoAuthError)]:
                raise refusals[0]
            if failures:
                raise ConflictError(listed(f"{path}: {type(failure).__name__}" for path, failure in failures))

        self._call(send, *(write for write in writes if isinstance(write, Write)))

    def _commit(self, writes: Sequence[Write | Guard]) -> list[tuple[str, Exception]]:
        """Send the writes as one request, and return the paths that failed with their errors.

        Writes that ZooKeeper undid only because of another failure are left out.
        """
        request = self._client.transaction()
        for write in writes:
            if isinstance(write, Guard):
                request.check(write.path, write.version)
            elif write.value is None:
                request.delete(write.path, version=-1 if write.version is None else write.version)
            elif write.version is None:
                request.create(write.path, write.data)
            else:
                request.set_data(write.path, write.data, version=write.version)
        answers = request.commit_async().get()
        failures = [
            (write.path, answer)
            for write, answer in zip(writes, answers, strict=True)
            if isinstance(answer, Exception)
        ]
        causes = [
            (path, failure)
            for path, failure in failures
            if not isinstance(failure, RolledBackError | RuntimeInconsistency)
        ]
        return causes or failures

    T = TypeVar("T")

    def _call(self, request: Callable[[], T], *writes: Write) -> T:
        if not self.connected:
            message = f"ZooKeeper at {self.hosts} is not connected"
            raise ChannelAwayError(message)
        _check_size(writes)
        try:
            with defer_interrupts():
                return request()
        except NoAuthError as error:
            raise NotAllowedError(_refusal(self._credential, writes)) from error
        except (BadVersionError, NodeExistsError, NoNodeError) as error:
            raise ConflictError(repr(error)) from error
        except KazooException as error:
            message = f"ZooKeeper at {self.hosts} does not answer: {error!r}"
            raise ChannelAwayError(message) from error


def _check_size(writes: Sequence[Write]) -> None:
    if sum(len(write.data) for write in writes) > LARGEST_BYTES:
        largest = max(writes, key=lambda write: len(write.data))
        others = ", with other nodes in the same request" if len(writes) > 1 else ""
        size = f"{largest.path} would have {len(largest.data):,} bytes{others}"
        message = f"{size}: ZooKeeper accepts {LARGEST_BYTES:,} bytes per request; nothing was written"
        raise TooLargeError(message)


def _refusal(mine: Credential | None, writes: Sequence[Write]) -> str:
    """Return the message about a refused change.

    The message names the node, the role that may change it, and the folder of the credentials.
    """
    allowed = {
        write.path: removers(write.path) if write.value is None else changers(write.path) for write in writes
    }
    refused = {
        path: roles
        for path, roles in allowed.items()
        if mine is None or mine.password is None or mine.role not in roles
    }
    event = f"the channel refuses a change of {', '.join(refused or allowed)}"
    hosts = {host for path in allowed if (host := host_of(path)) is not None}
    if not refused and hosts and mine is not None and mine.role is Role.AGENT:
        return f"{event}: {_refusal_of_agent(mine, hosts)}"
    if not refused:
        return (
            f"{event}: its access list does not match the roles of this endpoints file; "
            "check all lists with: sluice access"
        )
    needed = " or ".join(sorted({role for roles in refused.values() for role in roles})) or Role.ADMIN
    if mine is None:
        return f"{event}: this needs the role {needed}, but this endpoints file names no roles"
    return f"{event}: {mine.refused(needed)}"


def _refusal_of_agent(mine: Credential, hosts: Collection[str]) -> str:
    """Return the cause of an agent's refusal: it is another host's agent, or its credential
    differs.
    """
    if mine.own is not None and mine.own.host in hosts:
        return (
            f"the channel knows the agent of {mine.own.host} by another credential than this process has: "
            f"the host was reinstalled, or another host has the same name. If no other host uses the name, "
            f"an operator runs: `sluice access --forget {mine.own.host}`"
        )
    role = "an agent without a host" if mine.own is None else f"the agent of {mine.own.host}"
    return f"this needs the agent of {', '.join(sorted(hosts))}, but this process is {role}"


def _json(value: BaseModel) -> bytes:
    """Return the JSON of a value, without fields that have their default."""
    return value.model_dump_json(exclude_defaults=True).encode()


class Waker:
    """An event for loops that sleep until the channel changes or a time has passed."""

    def __init__(self, channel: Channel) -> None:
        self._event = threading.Event()
        channel.on_wake(self._event.set)

    def wait(self, seconds: float) -> None:
        """Sleep until a watched node or the connection changes, at most `seconds`."""
        self._event.wait(seconds)
        self._event.clear()

    def set(self) -> None:
        """Wake the sleeping loop now."""
        self._event.set()
