"""One process's connection to the control channel.

Everything that decides something fails fast while ZooKeeper is away (kazoo itself would queue it and send it later, when it may be
wrong); whoever only follows the channel keeps what it read last and goes on.
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

UNDER_WAY = 1000
"""Requests that are sent before the first of them is waited for."""
LARGEST_BYTES = 1_000_000
"""What one request may write. ZooKeeper (jute.maxbuffer, 1 MiB) answers a larger one by closing the connection, as if it was away."""
SESSION_SECONDS = 6.0
"""A process that is gone for this long has lost its ephemeral nodes."""


class ChannelAwayError(Exception):
    """ZooKeeper cannot be asked now. Temporary: decide nothing, keep what runs, try again."""


class NotAllowedError(ChannelAwayError):
    """ZooKeeper does not take this change from this process; the message says from whom it would. Not temporary.

    Who follows the channel goes on as if it was away, and records flow; who asked for a change is told.
    """


class TooLargeError(ChannelAwayError):
    """ZooKeeper would not take so much at once; the message names the node. Not temporary, and who follows the channel goes on likewise."""


class ConflictError(Exception):
    """The node has changed since it was read. Temporary: read again and decide again."""


@dataclass(frozen=True)
class Read(Generic[M]):
    """A value, the version that guards writes to it, and where it is in the order in which nodes were made."""

    value: M
    version: int
    made: int
    """ZooKeeper's number of the write that made the node: it grows with each write, whatever clocks say."""


ANY_VERSION = -1
"""Has a write replace whatever is there: for one's own word, which is never added to."""


@dataclass(frozen=True)
class Write:
    """One guarded write of a `multi`: `version` None creates, a number sets only that version; `value` None deletes."""

    path: str
    value: BaseModel | None
    version: int | None

    @cached_property
    def data(self) -> bytes:
        """What is written; nothing where it deletes."""
        return b"" if self.value is None else _written(self.value)


@dataclass(frozen=True)
class Guard:
    """A condition of a `multi`: nothing is written at `path`, but everything fails unless it has that version."""

    path: str
    version: int


class Channel:
    """Typed access to one pipeline's part of ZooKeeper."""

    def __init__(
        self, hosts: str, credential: Credential | None = None, *, session_seconds: float = SESSION_SECONDS
    ) -> None:
        """Prepare a connection to `hosts`, a ZooKeeper address with the pipeline's chroot at its end.

        Without a credential it can read, and write where the tree has no access lists.
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
        """Connect, and make the tree's roots; raise ChannelAwayError when that takes too long."""
        try:
            with warnings.catch_warnings():
                # The first one to connect makes the chroot, with the roots below it; not what is above the chroot.
                warnings.filterwarnings("ignore", message="No chroot path exists")
                self._client.start(timeout=seconds)
            for root in paths.ROOTS:
                self._client.ensure_path(root)
        except NoNodeError as error:
            self.stop()
            message = (
                f"ZooKeeper at {self.hosts} has no such chroot yet; whoever starts the platform makes it"
            )
            raise ChannelAwayError(message) from error
        except NoAuthError as error:
            self.stop()
            message = f"the tree of ZooKeeper at {self.hosts} is not whole, and only the admin makes it: `sluice access --apply`"
            raise NotAllowedError(message) from error
        except (KazooTimeoutError, KazooException) as error:
            self._client.stop()
            message = f"ZooKeeper at {self.hosts} does not answer: {error}"
            raise ChannelAwayError(message) from error
        return self

    def stop(self) -> None:
        """Disconnect: the ephemeral nodes of this process go at once."""
        with defer_interrupts():
            self._client.stop()
            self._client.close()

    def __enter__(self) -> Self:
        """Connect."""
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Disconnect."""
        self.stop()

    @property
    def connected(self) -> bool:
        """Whether a request would be sent now, rather than queued."""
        return bool(self._client.state == KazooState.CONNECTED)

    @property
    def session(self) -> int | None:
        """The session's id, to tell one session from the next."""
        identity = self._client.client_id
        return int(identity[0]) if identity else None

    @property
    def kazoo(self) -> Connection:
        """The client itself, for kazoo's own recipes (election, locks)."""
        return self._client

    def on_wake(self, waker: Callable[[], None]) -> None:
        """Have `waker` called, from kazoo's thread, whenever something watched or the connection changed. It must not block."""
        self._wakers.append(waker)

    def on_change(self, follower: Callable[[str | None], None]) -> None:
        """Have `follower` called, before any waker, with the path that changed; None when anything may have. It must not block."""
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
        """Return the value at `path`, or None where there is none.

        A node that does not parse is refused as if it were absent, and said once: the reader keeps its last good value.
        """
        return self.read_many((path,), model, watch=watch)[0]

    def sync(self, path: str) -> None:
        """Have the server catch up with all that was written before: what is read next is not older than this call."""
        self._call(lambda: self._client.sync_async(path).get())

    def read_many(self, paths: Sequence[str], model: type[M], *, watch: bool = False) -> list[Read[M] | None]:
        """Return the values at many paths, as `read` does one, with the requests under way together."""
        answers = self._call(lambda: self._all(self._client.get_async, paths, watch=watch))
        return [self._parsed(path, answer, model) for path, answer in zip(paths, answers, strict=True)]

    def _all(self, ask: Callable[..., IAsyncResult], paths: Sequence[str], *, watch: bool) -> list[Any]:
        """Return the answer for each path, None where there is no node; a watch tells of that being made too."""
        answers = self._ask(ask, paths, watch=watch)
        absent = [number for number, answer in enumerate(answers) if answer is None] if watch else []
        there = self._ask(self._client.exists_async, [paths[number] for number in absent], watch=True)
        for number, stat in zip(absent, there, strict=True):
            if stat is not None:  # it was made in between, and nothing would tell
                (answers[number],) = self._all(ask, (paths[number],), watch=True)
        return answers

    def _ask(self, ask: Callable[..., IAsyncResult], paths: Sequence[str], *, watch: bool) -> list[Any]:
        answers: list[Any] = []
        for begin in range(0, len(paths), UNDER_WAY):
            asked = [
                ask(path, watch=self._wake if watch else None) for path in paths[begin : begin + UNDER_WAY]
            ]
            for each in asked:
                try:
                    answers.append(each.get())
                except NoNodeError:
                    answers.append(None)
        return answers

    @property
    def refused(self) -> frozenset[str]:
        """The nodes that did not parse when they were last read."""
        return frozenset(self._refused)

    def _parsed(self, path: str, answer: Any, model: type[M]) -> Read[M] | None:
        if answer is None:
            self._refused.discard(path)
            return None
        data, version, made = answer[0], answer[1].version, answer[1].czxid
        if (
            not data and version == 0 and rights(path).create
        ):  # made on the way to what is below it, and its own writer has not come yet
            self._refused.discard(path)
            return None
        try:
            value = model.model_validate_json(
                data, extra="allow"
            )  # what a newer version has added is kept, for whoever writes it again
        except ValidationError as error:
            if path not in self._refused:
                self._refused.add(path)
                log.warning(
                    "refused a node that does not parse; the last good value stays",
                    path=path,
                    error=str(error),
                )
            return None
        self._refused.discard(path)
        return Read(value, version, made)

    def children(self, path: str, *, watch: bool = False) -> list[str]:
        """Return the names below `path`, sorted; none where the node is absent."""
        return self.children_many((path,), watch=watch)[0]

    def children_many(self, paths: Sequence[str], *, watch: bool = False) -> list[list[str]]:
        """Return the names below many paths, as `children` does one, with the requests under way together."""
        found = self._call(lambda: self._all(self._client.get_children_async, paths, watch=watch))
        return [sorted(names or ()) for names in found]

    def exists(self, path: str, *, watch: bool = False) -> bool:
        """Tell whether there is a node at `path`."""
        return self._call(lambda: self._ask(self._client.exists_async, (path,), watch=watch)[0]) is not None

    def version(self, path: str) -> int | None:
        """Return the version of the node at `path`, which may be one that does not parse; None where there is none."""
        stat = self._call(lambda: self._ask(self._client.exists_async, (path,), watch=False)[0])
        return None if stat is None else int(stat.version)

    def made_at(self, path: str) -> float | None:
        """Return when the node at `path` was made, in seconds by ZooKeeper's clock; None where there is none."""
        stat = self._call(lambda: self._ask(self._client.exists_async, (path,), watch=False)[0])
        return None if stat is None else float(stat.ctime) / 1000

    # -- writing

    def put(self, path: str, value: BaseModel, *, version: int | None = None) -> None:
        """Create or overwrite; with `version`, only that version is overwritten (ConflictError otherwise)."""
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
        """Create; return False when it is there already (posting twice is the same as once)."""
        write = Write(path, value, None)

        def send() -> bool:
            made = self._client.create_async(
                path, write.data, ephemeral=ephemeral, sequence=sequence, makepath=True
            )
            try:
                made.get()
            except NodeExistsError:
                return False
            return True

        return self._call(send, write)

    def delete(self, path: str) -> None:
        """Delete a node and all below it; an absent one is fine."""

        def send() -> None:
            try:
                self._client.delete(path, recursive=True)
            except NoNodeError:
                return

        self._call(send, Write(path, None, None))

    def multi(self, writes: Sequence[Write | Guard]) -> None:
        """Do all of it or nothing; ConflictError when any guard fails."""

        def send() -> None:
            failures = self._commit(writes)
            created = {
                write.path
                for write in writes
                if isinstance(write, Write) and write.version is None and write.value is not None
            }
            if any(path in created and isinstance(failure, NoNodeError) for path, failure in failures):
                # Only now, when the guards before it have held: one who must not write leaves not even an empty node.
                for parent in sorted({path.rsplit("/", 1)[0] for path in created} - {""}):
                    self._client.ensure_path_async(parent).get()
                failures = self._commit(writes)
            if refusals := [failure for _, failure in failures if isinstance(failure, NoAuthError)]:
                raise refusals[0]
            if failures:
                raise ConflictError(listed(f"{path}: {type(failure).__name__}" for path, failure in failures))

        self._call(send, *(write for write in writes if isinstance(write, Write)))

    def _commit(self, writes: Sequence[Write | Guard]) -> list[tuple[str, Exception]]:
        """Send it as one request, and return what has failed; the others are told that they were undone, or not looked at, for its sake."""
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
        return [
            each for each in failures if not isinstance(each[1], RolledBackError | RuntimeInconsistency)
        ] or failures

    T = TypeVar("T")

    def _call(self, request: Callable[[], T], *writes: Write) -> T:
        if not self.connected:
            message = f"ZooKeeper at {self.hosts} is away"
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
            message = f"ZooKeeper at {self.hosts} is away: {error!r}"
            raise ChannelAwayError(message) from error


def _check_size(writes: Sequence[Write]) -> None:
    if sum(len(write.data) for write in writes) > LARGEST_BYTES:
        largest = max(writes, key=lambda write: len(write.data))
        beside = ", beside others" if len(writes) > 1 else ""
        size = f"{largest.path} would have {len(largest.data):,} bytes{beside}"
        message = f"{size}: ZooKeeper takes {LARGEST_BYTES:,} at once, and nothing was written"
        raise TooLargeError(message)


def _refusal(mine: Credential | None, writes: Sequence[Write]) -> str:
    """Say what was not allowed, to whom it would be, and where the credential for it is looked for."""
    allowed = {
        write.path: removers(write.path) if write.value is None else changers(write.path) for write in writes
    }
    refused = {
        path: roles
        for path, roles in allowed.items()
        if mine is None or mine.password is None or mine.role not in roles
    }
    what = f"the channel refuses a change of {', '.join(refused or allowed)}"
    hosts = {host for path in allowed if (host := host_of(path)) is not None}
    if not refused and hosts and mine is not None and mine.role is Role.AGENT:
        return f"{what}: {_refusal_of_agent(mine, hosts)}"
    if not refused:
        return f"{what}: its access lists are not those of this endpoints file; `sluice access` tells more"
    who = " or ".join(sorted({role for roles in refused.values() for role in roles})) or Role.ADMIN
    if mine is None:
        return f"{what}: that takes {who}, and this endpoints file names no roles"
    return f"{what}: {mine.refused(who)}"


def _refusal_of_agent(mine: Credential, hosts: Collection[str]) -> str:
    """Say whose agent it takes, or that the channel knows this host's by another credential than it has."""
    if mine.own is not None and mine.own.host in hosts:
        return (
            f"the channel knows the agent of {mine.own.host} by another credential than this process has. Was the host made anew, or is "
            f"there a second one of that name? Once no other uses it: `sluice access --forget {mine.own.host}`, by an operator"
        )
    me = "an agent without a host" if mine.own is None else f"the agent of {mine.own.host}"
    return f"that takes the agent of {', '.join(sorted(hosts))}, and this process is {me}"


def _written(value: BaseModel) -> bytes:
    """Leave out what has its default."""
    return value.model_dump_json(exclude_defaults=True).encode()


class Waker:
    """An event that channel changes set, for loops that sleep until something happens or a period is over."""

    def __init__(self, channel: Channel) -> None:
        """Be woken by `channel`."""
        self._event = threading.Event()
        channel.on_wake(self._event.set)

    def wait(self, seconds: float) -> None:
        """Sleep until something changed, `seconds` at most."""
        self._event.wait(seconds)
        self._event.clear()

    def set(self) -> None:
        """Wake now."""
        self._event.set()
