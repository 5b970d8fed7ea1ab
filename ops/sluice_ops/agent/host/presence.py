"""The agent's side of the channel: who it is, that it lives, what it was assigned and what it observes."""

import time
from pathlib import Path

import structlog
from kazoo.exceptions import KazooException, NoNodeError
from pydantic import ValidationError

from sluice_ops.agent.host.processes import boot_id
from sluice_ops.channel import Channel, ChannelAwayError, Write
from sluice_ops.channel.client import SESSION_SECONDS
from sluice_ops.model import paths
from sluice_ops.model.assignment import Assignment, HostFacts, Observed
from sluice_ops.model.resources import Frozen
from sluice_ops.operations.joining import spending

log = structlog.get_logger()

OTHER_AGENT_SECONDS = 2.5 * SESSION_SECONDS
"""A dead agent's ephemeral node is gone by then; one that is still there belongs to an agent that lives."""


class OtherAgentError(Exception):
    """Another agent serves this host."""


class Live(Frozen):
    """`hosts/<h>/live`: the agent that serves the host now."""

    address: str
    pid: int
    boot: str
    """The boot of the machine that it runs on."""
    home: Path
    since: float


class Presence:
    """Registers the host, keeps its ephemeral node, reads assignments, writes observations."""

    def __init__(
        self, channel: Channel, facts: HostFacts, home: Path, pid: int, token_file: Path | None = None
    ) -> None:
        """Speak for one host; the file of the token that it may have joined with goes once it is registered."""
        self._channel = channel
        self._facts = facts
        self._token_file = token_file
        self._me = Live(address=facts.address, pid=pid, boot=boot_id(), home=home, since=time.time())
        self._other_since: float | None = None
        self._session: int | None = None
        self._reported: Observed | None = None
        self._refused: int | None = None
        self.refusals = 0
        """Assignments of an older controller that were refused."""

    def ensure(self) -> bool:
        """Make sure that ephemeral node and host are there, in this session; return whether they are.

        What the host has is written last: an agent that finds another one there must not overwrite what that one has said.
        """
        if self._session != self._channel.session and not self._channel.exists("/"):
            message = f"{self._channel.hosts} has no such chroot yet; whoever starts the platform makes it"
            raise ChannelAwayError(message)
        if not self._hold_live():
            return False
        if self._session != self._channel.session:
            self._register()
            self._session = self._channel.session
            self._reported = None
            log.info("registered", host=self._facts.name, address=self._facts.address, zone=self._facts.zone)
        return True

    def _register(self) -> None:
        """Say what the host has, and spend the token that it may have, in one request: a join that ends before can be repeated."""
        path, host = paths.host(self._facts.name), self._facts.name
        known, spent = self._channel.read(path, HostFacts), spending(self._channel, host)
        if known is None or known.value != self._facts or spent:
            self._channel.multi([Write(path, self._facts, self._channel.version(path)), *spent])
        if self._token_file is not None:
            try:
                self._token_file.unlink(missing_ok=True)
            except OSError as error:
                log.warning(
                    "the token is spent, and its file cannot be removed",
                    file=str(self._token_file),
                    error=error.strerror,
                )

    def assignment(self, last: Assignment) -> Assignment:
        """Return what is assigned now; what was last where nothing can be read, or where an older controller wrote it."""
        read = self._channel.read(paths.assignment(self._facts.name), Assignment, watch=True)
        if read is None:
            return last
        if read.value.epoch < last.epoch:
            if self._refused != read.value.epoch:
                self._refused = read.value.epoch
                self.refusals += 1
                log.error(
                    "refused an assignment of an older controller; if ZooKeeper was set back, remove the host's assignment.json",
                    epoch=read.value.epoch,
                    seen=last.epoch,
                )
            return last
        return read.value

    def report(self, observed: Observed) -> None:
        """Write what is observed, if it changed or if it is not there."""
        path = paths.observed(self._facts.name)
        if observed != self._reported or not self._channel.exists(path):
            self._channel.put(path, observed)
            self._reported = observed

    def _hold_live(self) -> bool:
        path = paths.live(self._facts.name)
        kazoo = self._channel.kazoo
        try:
            found = kazoo.get(path) if self._channel.exists(path, watch=True) else None
        except NoNodeError:
            found = None
        except KazooException as error:
            raise ChannelAwayError(str(error)) from error
        if found is None:
            self._other_since = None
            return self._channel.create(path, self._me, ephemeral=True)
        data, stat = found
        if stat.ephemeralOwner == self._channel.session:
            self._other_since = None
            return True
        try:
            holder = Live.model_validate_json(
                data, extra="ignore"
            )  # what a newer version has added says nothing to this one
        except ValidationError:
            return self._wait_for_other("which has not said who it is")
        if (holder.boot, holder.home) == (self._me.boot, self._me.home):
            return self._take_over(path, stat.version)
        return self._wait_for_other(f"process {holder.pid} at {holder.address} with home {holder.home}")

    def _take_over(self, path: str, version: int) -> bool:
        """Replace what a dead agent of this very host has left: the lock on the host's folder proves that it is dead."""
        request = self._channel.kazoo.transaction()
        request.delete(path, version=version)
        request.create(path, self._me.model_dump_json().encode(), ephemeral=True)
        try:
            answers = request.commit()
        except KazooException as error:
            raise ChannelAwayError(str(error)) from error
        return not any(isinstance(answer, Exception) for answer in answers)

    def _wait_for_other(self, holder: str) -> bool:
        now = time.monotonic()
        if self._other_since is None:
            self._other_since = now
        if now - self._other_since > OTHER_AGENT_SECONDS:
            message = f"host {self._facts.name!r} is served by another agent, {holder}: stop that one, or give this host a name of its own"
            raise OtherAgentError(message)
        return False
