"""The messages between a host that joins, the maker of its token and the controller.

Decision 53 gives the reasons. Pure.
"""

from datetime import UTC, datetime

from sluice_ops.model.resources import Frozen


class ControllerKey(Frozen):
    """`controller/key`: the key to which tokens are sealed."""

    public: str


class Sealed(Frozen):
    """`joining/<host>`: the host's data, sealed with the token's key and again to the
    controller.
    """

    seconds: float
    """How long after this node was made the token may be claimed."""
    known_as: str
    """The id of the token's holder in access lists."""
    data: str


class Claim(Frozen):
    """`joining/<host>/claim`: made by the first machine that uses the token, never changed."""

    public: str
    """The key to which the controller seals its answer.

    The private key follows from the credential in the machine's host folder.
    """
    machine: str
    """The machine's name in its own words, for people."""


class Answer(Frozen):
    """`joining/<host>/claim/answer`: the controller's answer to a claim."""

    data: str | None = None
    """The host's data, sealed with the token's key and again to the claimant."""
    refused: str | None = None
    """Why the claim is refused, and the next step."""


def refusal(host: str, sealed: Sealed, made_at: float, claimed_at: float) -> str | None:
    """Return why a claim is too late; None: it is in time.

    Both times are ZooKeeper's, in seconds.
    """
    if claimed_at - made_at <= sealed.seconds:
        return None
    return (
        f"the token for {host} expired at {shown(made_at + sealed.seconds)} and was used at "
        f"{shown(claimed_at)}, by ZooKeeper's clock: {another(host)}"
    )


def is_expired(sealed: Sealed, made_at: float, now: float) -> bool:
    """Return whether a token can no longer be claimed. Both times are ZooKeeper's, in seconds."""
    return now - made_at > sealed.seconds


def another(host: str) -> str:
    """Return the command that makes another token."""
    return f"`sluice token {host}.token --host {host}` makes another"


def shown(moment: float) -> str:
    """Return a time as a text for people."""
    return f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%d %H:%M:%S} UTC"
