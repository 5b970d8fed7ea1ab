"""An agent registers its host, meets another agent in its place, or gets an assignment of an older
controller; with the channel in memory.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from simulation.memory import MemoryChannel

from sluice_ops.agent.host.presence import DecommissionedError, Presence
from sluice_ops.channel import ChannelAwayError, Guard, Write
from sluice_ops.model import paths
from sluice_ops.model.assignment import Assignment, Decommissioned, HostFacts
from sluice_ops.model.ids import HostName
from sluice_ops.model.joining import Answer, Claim, Sealed

FACTS = HostFacts(name=HostName("h1"), address="127.0.1.1", zone="onprem", cpu=8, memory=8192)


class Channel(MemoryChannel):
    """One session that owns its nodes; `other_agent` is the content of another agent's node."""

    session = 2
    hosts = "z1:2181/sluice/hits"

    def __init__(self, other_agent: bytes) -> None:
        super().__init__()
        self.kazoo = SimpleNamespace(
            get=lambda _: (other_agent, SimpleNamespace(ephemeralOwner=1, version=0))
        )

    def exists(self, path: str, **watch: bool) -> bool:
        return path in {"/", paths.live("h1")} or bool(super().exists(path, **watch))


OTHER = {"address": "10.0.0.9", "pid": 7, "boot": "another", "home": "/there", "since": 1.0}


@pytest.mark.parametrize("other_agent", [OTHER, {**OTHER, "colour": "of a newer version"}, {"pid": "none"}])
def test_the_facts_that_another_agent_reported_of_the_host_stay(other_agent: dict[str, object]) -> None:
    channel = Channel(json.dumps(other_agent).encode())
    channel.put(paths.host("h1"), FACTS)
    mine = FACTS.model_copy(update={"address": "127.0.1.2", "cpu": 64.0})
    assert not Presence(channel, mine, Path("/here"), 8).ensure()
    assert channel.read(paths.host("h1"), HostFacts).value == FACTS


def test_an_assignment_of_an_older_epoch_is_refused_and_reported_once() -> None:
    channel = MemoryChannel()
    presence = Presence(channel, FACTS, Path("/here"), 8)
    path, last = paths.assignment("h1"), Assignment(epoch=5, reboot="o-5")
    assert presence.assignment(last) == last, "no assignment is stored"
    for epoch, refusals in ((4, 1), (4, 1), (0, 2)):
        channel.put(path, Assignment(epoch=epoch, reboot="of an older controller"))
        assert presence.assignment(last) == last
        assert presence.refusals == refusals
    for epoch in (5, 6):
        channel.put(path, Assignment(epoch=epoch))
        assert presence.assignment(last) == Assignment(epoch=epoch)
    assert presence.refusals == 2


class RegisteredChannel(MemoryChannel):
    """A channel in which this agent holds its host's ephemeral node.

    While `fails` is set, every transaction fails.
    """

    session = 1
    hosts = "z1:2181/sluice/hits"

    def __init__(self, *, fails: bool = False) -> None:
        super().__init__()
        self.kazoo = SimpleNamespace(get=lambda _: (b"", SimpleNamespace(ephemeralOwner=1, version=0)))
        self.fails = fails

    def exists(self, path: str, **watch: bool) -> bool:
        return path in {"/", paths.live("h1")} or bool(super().exists(path, **watch))

    def multi(self, writes: Sequence[Write | Guard]) -> None:
        if self.fails:
            message = "away"
            raise ChannelAwayError(message)
        super().multi(writes)


def with_token(channel: MemoryChannel) -> None:
    channel.put(paths.joining("h1"), Sealed(seconds=1, known_as="joiner:x", data="x"))
    channel.put(paths.claim("h1"), Claim(public="x", machine="m"))
    channel.put(paths.answer("h1"), Answer(data="x"))
    channel.put(paths.joining("h2"), Sealed(seconds=1, known_as="joiner:x", data="x"))


def test_a_host_that_registers_spends_its_token_and_no_other(tmp_path: Path) -> None:
    channel, file = RegisteredChannel(), tmp_path / "h1.token"
    with_token(channel)
    file.write_text("token")
    assert Presence(channel, FACTS, Path("/here"), 8, file).ensure()
    assert channel.read(paths.host("h1"), HostFacts).value == FACTS
    assert channel.children(paths.JOINING) == ["h2"]
    assert not file.exists()


def test_a_host_that_is_not_registered_keeps_its_token(tmp_path: Path) -> None:
    channel, file = RegisteredChannel(fails=True), tmp_path / "h1.token"
    with_token(channel)
    file.write_text("token")
    presence = Presence(channel, FACTS, Path("/here"), 8, file)
    with pytest.raises(ChannelAwayError):
        presence.ensure()
    assert channel.exists(paths.answer("h1"))
    assert not channel.exists(paths.host("h1"))
    assert file.exists()
    channel.fails = False
    assert presence.ensure()
    assert not file.exists()


def test_a_token_that_came_after_registration_is_spent_in_the_next_session() -> None:
    channel = RegisteredChannel()
    channel.put(paths.host("h1"), FACTS)
    with_token(channel)
    assert Presence(channel, FACTS, Path("/here"), 8).ensure()
    assert channel.children(paths.JOINING) == ["h2"]


GONE = Decommissioned(change="d1", by="cli:anna", at=0.0)


def test_the_agent_of_a_decommissioned_host_is_refused() -> None:
    channel = RegisteredChannel()
    assert Presence(channel, FACTS, Path("/here"), 8).ensure()
    channel.put(paths.decommissioned("h1"), GONE)
    with pytest.raises(DecommissionedError, match="`sluice access --forget h1`"):
        Presence(channel, FACTS, Path("/here"), 8).ensure()
    known = FACTS.model_copy(update={"known_as": "agent-h1:x"})
    with pytest.raises(DecommissionedError, match=r"by cli:anna.*`sluice token h1.token --host h1`"):
        Presence(channel, known, Path("/here"), 8).ensure()


def test_a_decommissioned_host_with_a_new_token_registers(tmp_path: Path) -> None:
    channel, file = RegisteredChannel(), tmp_path / "h1.token"
    channel.put(paths.decommissioned("h1"), GONE)
    file.write_text("token")
    with pytest.raises(DecommissionedError):
        Presence(channel, FACTS, Path("/here"), 8, file).ensure()
    with_token(channel)
    presence = Presence(channel, FACTS, Path("/here"), 8, file)
    assert presence.ensure()
    assert presence.ensure()
    assert not channel.exists(paths.decommissioned("h1"))
