"""The controller answers the claim of a token once, by ZooKeeper's clock; with the channel in
memory.
"""

import pytest
from simulation.memory import MemoryChannel

from sluice_ops.channel import ConflictError, Guard, Write
from sluice_ops.channel.trail_queue import queued
from sluice_ops.controller.joining import Joining
from sluice_ops.model import paths
from sluice_ops.model.access import Credential, Role
from sluice_ops.model.change import EpochRecord
from sluice_ops.model.joining import Answer, Claim, ControllerKey, Sealed
from sluice_ops.model.trail import Outcome
from sluice_ops.operations.sealing import SealError, lock, private_key, public_key, seal, unlock, unseal
from sluice_ops.snapshot.mirror import Mirror

TOKEN, FIRST, SECOND = "t" * 43, private_key("1" * 32, "answer to h4"), private_key("2" * 32, "answer to h4")
EPOCH = Guard(paths.EPOCH, 0)


class Site:
    """A channel with a leading controller, and a token for a host."""

    def __init__(self, password="c" * 32):
        self.channel = MemoryChannel()
        self.channel.on_change = lambda _: None
        self.channel.clock = 1_000.0
        self.channel.put(paths.EPOCH, EpochRecord(epoch=1, leader="c1"))
        self.joining = self.controller(password)
        self.joining.serve(EPOCH)
        self.public = self.channel.read(paths.CONTROLLER_KEY, ControllerKey).value.public

    def controller(self, password):
        return Joining(self.channel, Mirror(self.channel), Credential(Role.CONTROLLER, "", {}, password))

    def token(self, seconds=60.0, text="the bundle", host="h4"):
        sealed = seal(lock(text, TOKEN, "bundle"), self.public, f"token for {host}")
        self.channel.multi(
            [Write(paths.joining(host), Sealed(seconds=seconds, known_as="joiner:x", data=sealed), None)]
        )

    def claim(self, private, after=1.0):
        self.channel.clock += after
        self.channel.create(paths.claim("h4"), Claim(public=public_key(private), machine="m"))

    def answer(self):
        self.joining._mirror.invalidate(None)  # instead of watches
        self.joining.serve(EPOCH)
        stored = self.channel.read(paths.answer("h4"), Answer)
        return None if stored is None else stored.value

    def trail(self):
        return [
            (queued_entry.entry.what, queued_entry.entry.outcome) for queued_entry in queued(self.channel)
        ]


def open_answer(answer, private):
    return unlock(unseal(answer.data, private, "answer to h4"), TOKEN, "bundle")


def test_only_the_first_claim_in_time_gets_the_credential():
    site = Site()
    site.token()
    assert site.answer() is None, "the token is not claimed"
    site.claim(FIRST, after=60.0)
    answer = site.answer()
    assert open_answer(answer, FIRST) == "the bundle"
    with pytest.raises(SealError):
        open_answer(answer, SECOND)
    with pytest.raises(SealError):
        unlock(unseal(answer.data, FIRST, "answer to h4"), "another token", "bundle")
    assert site.trail() == [("join h4 with its token, from machine m", Outcome.DONE)]
    writes = site.channel.writes
    assert site.answer() == answer
    assert site.channel.writes == writes, "the claim is answered once"


@pytest.mark.parametrize("after", [60.001, 3600.0])
def test_a_late_claim_by_zookeepers_clock_is_refused_with_the_expiry(after):
    site = Site()
    site.token(seconds=60.0)
    site.claim(FIRST, after=after)
    answer = site.answer()
    assert answer.data is None
    assert answer.refused.startswith(
        "the token for h4 expired at 1970-01-01 00:17:40 UTC and was used at 1970-01-01 "
    )
    assert "`sluice token h4.token --host h4` makes another" in answer.refused
    assert [outcome for _, outcome in site.trail()] == [Outcome.REFUSED]


def test_a_claim_in_time_is_answered_even_by_a_late_controller():
    site = Site()
    site.token(seconds=60.0)
    site.claim(FIRST, after=59.0)
    site.channel.clock += 3600.0
    assert open_answer(site.answer(), FIRST) == "the bundle"


def test_a_controller_with_another_credential_gives_the_reason():
    site = Site()
    site.token()
    site.claim(FIRST)
    site.joining = site.controller("c" * 32)
    assert open_answer(site.answer(), FIRST) == "the bundle"
    changed = Site()
    changed.token()
    changed.claim(FIRST)
    changed.joining = changed.controller("d" * 32)
    assert "credential was changed after the token was made" in changed.answer().refused


def test_a_token_of_one_host_is_not_opened_for_another():
    site = Site()
    site.token(host="h3")
    site.channel.put(paths.joining("h4"), site.channel.read(paths.joining("h3"), Sealed).value)
    site.claim(FIRST)
    assert site.answer().data is None


def test_a_deposed_leader_answers_no_claim():
    site = Site()
    site.token()
    site.claim(FIRST)
    site.channel.put(paths.EPOCH, EpochRecord(epoch=2, leader="c2"))
    with pytest.raises(ConflictError):
        site.answer()
    assert not site.channel.exists(paths.answer("h4"))
