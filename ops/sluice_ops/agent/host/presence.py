"""The agent's nodes in the channel: host facts, ephemeral node, assignment and observed units."""

import time
from pathlib import Path

import structlog
from kazoo.exceptions import KazooException, NoNodeError
from pydantic import ValidationError

from sluice_ops.agent.host.processes import boot_id
from sluice_ops.channel import Channel, ChannelAwayError, Write
from sluice_ops.channel.client import SESSION_SECONDS
from sluice_ops.model import paths
from sluice_ops.model.assignment import Assignment, Decommissioned, HostFacts, Observed
from sluice_ops.model.resources import Frozen
from sluice_ops.operations.joining import spending

log = structlog.get_logger()

OTHER_AGENT_SECONDS = 2.5 * SESSION_SECONDS
"""A dead agent's ephemeral node has expired by then, so a node that still exists is of a living
agent.
"""


class OtherAgentError(Exception):
    """Another living agent serves a host of this name."""


class DecommissionedError(Exception):
    """The host was decommissioned; the message says by whom, and how its name is used again."""


class Live(Frozen):
    """`hosts/<h>/live`: the agent that serves the host now."""

    address: str
    pid: int
    boot: str
    """The kernel's id of the boot of the agent's machine."""
    home: Path
    since: float


class Presence:
    """Registers the host, keeps its ephemeral node, reads assignments, writes observed units."""

    def __init__(
        self, channel: Channel, facts: HostFacts, home: Path, pid: int, token_file: Path | None = None
    ) -> None:
        """Serve one host; a registered host's token file is deleted."""
        self._channel = channel
        self._facts = facts
        self._token_file = token_file
        self._live = Live(address=facts.address, pid=pid, boot=boot_id(), home=home, since=time.time())
        self._other_since: float | None = None
        self._session: int | None = None
        self._reported: Observed | None = None
        self._refused_epoch: int | None = None
        self.refusals = 0
        """How many assignments of an older controller this agent has refused."""

    def ensure(self) -> bool:
        """Create the ephemeral node and register the host, once per session; return whether both
        exist.

        Return False while another agent's node exists; raise OtherAgentError if that agent lives,
        and DecommissionedError if the host was decommissioned and has no new token.
        The host's facts are written last, so that an agent never overwrites the facts of another
        one.
        """
        if self._session != self._channel.session and not self._channel.exists("/"):
            message = (
                f"ZooKeeper has no chroot {self._channel.hosts} yet, so the host cannot register; "
                "the start of the platform creates the chroot"
            )
            raise ChannelAwayError(message)
        self._refuse_decommissioned()
        if not self._hold_live():
            return False
        if self._session != self._channel.session:
            self._register()
            self._session = self._channel.session
            self._reported = None
            log.info(
                "host registered", host=self._facts.name, address=self._facts.address, zone=self._facts.zone
            )
        return True

    def _refuse_decommissioned(self) -> None:
        host = self._facts.name
        gone = paths.decommissioned(host)
        if not self._channel.exists(gone, watch=True) or self._joins_anew():
            return
        read = self._channel.read(gone, Decommissioned)
        if read is not None:
            raise DecommissionedError(read.value.refusal(host, has_tokens=self._facts.known_as is not None))

    def _joins_anew(self) -> bool:
        """Tell whether this agent has claimed a token that is not spent yet."""
        return (
            self._token_file is not None
            and self._token_file.exists()
            and self._channel.exists(paths.joining(self._facts.name))
        )

    def _register(self) -> None:
        """Write the host's facts, spend its join token, and end its decommission, in one request.

        So a join that is interrupted before can be repeated.
        """
        path, host = paths.host(self._facts.name), self._facts.name
        known, token_writes = self._channel.read(path, HostFacts), spending(self._channel, host)
        if known is None or known.value != self._facts or token_writes:
            gone = paths.decommissioned(host)
            ended = [Write(gone, None, None)] if token_writes and self._channel.exists(gone) else []
            self._channel.multi(
                [Write(path, self._facts, self._channel.version(path)), *token_writes, *ended]
            )
        if self._token_file is not None:
            try:
                self._token_file.unlink(missing_ok=True)
            except OSError as error:
                log.warning(
                    "the join token is used up, but its file cannot be deleted; delete the file",
                    file=str(self._token_file),
                    error=error.strerror,
                )

    def assignment(self, last: Assignment) -> Assignment:
        """Return the current assignment.

        Return `last` if no assignment can be read, or if an older controller wrote it.
        """
        read = self._channel.read(paths.assignment(self._facts.name), Assignment, watch=True)
        if read is None:
            return last
        if read.value.epoch < last.epoch:
            if self._refused_epoch != read.value.epoch:
                self._refused_epoch = read.value.epoch
                self.refusals += 1
                log.error(
                    "assignment refused: an older controller wrote it; the units of the last assignment "
                    "continue. If ZooKeeper was restored from a backup, stop the agent, delete "
                    "hosts/<host>/assignment.json in SLUICE_HOME, and start the agent",
                    host=self._facts.name,
                    epoch=read.value.epoch,
                    last_epoch=last.epoch,
                )
            return last
        return read.value

    def report(self, observed: Observed) -> None:
        """Write the observed units, if they changed or if their node does not exist."""
        path = paths.observed(self._facts.name)
        if observed != self._reported or not self._channel.exists(path):
            self._channel.put(path, observed)
            self._reported = observed

    def _hold_live(self) -> bool:
        path = paths.live(self._facts.name)
        kazoo = self._channel.kazoo
        try:
            node = kazoo.get(path) if self._channel.exists(path, watch=True) else None
        except NoNodeError:
            node = None
        except KazooException as error:
            raise ChannelAwayError(str(error)) from error
        if node is None:
            self._other_since = None
            return self._channel.create(path, self._live, ephemeral=True)
        data, stat = node
        if stat.ephemeralOwner == self._channel.session:
            self._other_since = None
            return True
        try:
            holder = Live.model_validate_json(data, extra="ignore")  # fields of a newer version
        except ValidationError:
            return self._wait_for_other("whose node in ZooKeeper cannot be read")
        if (holder.boot, holder.home) == (self._live.boot, self._live.home):
            return self._take_over(path, stat.version)
        return self._wait_for_other(f"process {holder.pid} at {holder.address} with home {holder.home}")

    def _take_over(self, path: str, version: int) -> bool:
        """Replace the node of this host's earlier agent; return whether it worked.

        The earlier agent is dead: this process holds the lock on the host's folder.
        """
        request = self._channel.kazoo.transaction()
        request.delete(path, version=version)
        request.create(path, self._live.model_dump_json().encode(), ephemeral=True)
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
            message = (
                f"host {self._facts.name!r} is served by another agent, {holder}; "
                "stop that agent, or give this host another name in the site file"
            )
            raise OtherAgentError(message)
        return False
