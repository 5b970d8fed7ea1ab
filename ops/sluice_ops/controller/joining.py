"""How the controller lets a host join: the first machine that claims the token gets an answer.

The answer is the bundle with the controller's seal removed and the machine's seal added. The bundle
stays locked with the token's key, which the controller does not know.
"""

import time

import structlog

from sluice_ops.channel import Channel, Guard, NotAllowedError, Write
from sluice_ops.model import paths
from sluice_ops.model.access import Credential, Role
from sluice_ops.model.change import CONTROLLER
from sluice_ops.model.joining import Answer, Claim, ControllerKey, Sealed, another, refusal
from sluice_ops.model.trail import Entry, Outcome
from sluice_ops.operations.sealing import SealError, private_key, public_key, seal, unseal
from sluice_ops.snapshot.mirror import Mirror

log = structlog.get_logger()


class Joining:
    """Answers claims of tokens while its controller leads."""

    def __init__(self, channel: Channel, mirror: Mirror, credential: Credential) -> None:
        """Derive the key pair from the controllers' credential, the same for all controllers."""
        self._channel, self._mirror = channel, mirror
        self._private = private_key(credential.password or "", "the controller's key")
        self._published_in: Guard | None = None
        self._last_refusal = ""

    def serve(self, epoch: Guard) -> None:
        """Publish the public key once in each term, and answer every unanswered claim."""
        try:
            if self._published_in != epoch:
                self._publish(epoch)
                self._published_in = epoch
            for host in self._unanswered():
                self._answer(host, epoch)
        except NotAllowedError as refused:
            # the tree's access lists are of another version: hosts cannot join, the rest works
            if self._last_refusal != str(refused):
                self._last_refusal = str(refused)
                log.warning("no host can join; next: sluice access --apply", reason=self._last_refusal)

    def _publish(self, epoch: Guard) -> None:
        own_key = ControllerKey(public=public_key(self._private))
        published = self._channel.read(paths.CONTROLLER_KEY, ControllerKey)
        if published is None or published.value != own_key:
            self._channel.multi(
                [epoch, Write(paths.CONTROLLER_KEY, own_key, self._channel.version(paths.CONTROLLER_KEY))]
            )

    def _unanswered(self) -> list[str]:
        hosts = self._mirror.children(paths.JOINING, watch=True)
        claimed = [
            host for host in hosts if paths.CLAIM in self._mirror.children(paths.joining(host), watch=True)
        ]
        return [
            host
            for host in claimed
            if paths.ANSWER not in self._mirror.children(paths.claim(host), watch=True)
        ]

    def _answer(self, host: str, epoch: Guard) -> None:
        claim = self._channel.read(paths.claim(host), Claim)
        sealed = self._channel.read(paths.joining(host), Sealed)
        created_at, claimed_at = (
            self._channel.made_at(paths.joining(host)),
            self._channel.made_at(paths.claim(host)),
        )
        if claim is None or sealed is None or created_at is None or claimed_at is None:
            return
        answer = self._decide(
            host, sealed.value, claim.value, refusal(host, sealed.value, created_at, claimed_at)
        )
        outcome, sentence = (
            (Outcome.DONE, "") if answer.refused is None else (Outcome.REFUSED, answer.refused)
        )
        joined = f"join {host} with its token, from machine {claim.value.machine}"
        entry = Entry(at=time.time(), by=CONTROLLER, what=joined, outcome=outcome, sentence=sentence)
        guards = [epoch, Guard(paths.joining(host), sealed.version), Guard(paths.claim(host), claim.version)]
        trail_path = paths.trail(Role.CONTROLLER, f"join-{host}.{claim.made}")
        try:
            self._channel.multi(
                [*guards, Write(paths.answer(host), answer, None), Write(trail_path, entry, None)]
            )
        finally:
            for path in (paths.JOINING, paths.joining(host), paths.claim(host)):
                self._mirror.invalidate(path)
        log.info(
            "a host's request to join was answered",
            host=host,
            machine=claim.value.machine,
            refused=answer.refused,
        )

    def _decide(self, host: str, sealed: Sealed, claim: Claim, refused: str | None) -> Answer:
        if refused is not None:
            return Answer(refused=refused)
        try:
            return Answer(
                data=seal(
                    unseal(sealed.data, self._private, f"token for {host}"), claim.public, f"answer to {host}"
                )
            )
        except SealError:
            return Answer(
                refused=f"the controller cannot open the bundle for {host}: "
                "the controller's credential was changed after the token was made, or the claim is "
                f"damaged: {another(host)}"
            )
