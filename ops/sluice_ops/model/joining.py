"""The words between a host that joins, who made its token, and the controller. Decision record 0053 says why. Pure."""

from datetime import UTC, datetime

from sluice_ops.model.resources import Frozen


class ControllerKey(Frozen):
    """`controller/key`: what tokens are sealed to."""

    public: str


class Sealed(Frozen):
    """`joining/<host>`: what the host needs, sealed with the token's key, and again to the controller."""

    seconds: float
    """How long after this node was made the token may be claimed."""
    known_as: str
    """How access lists know whoever has the token."""
    data: str


class Claim(Frozen):
    """`joining/<host>/claim`: made by the first machine that uses the token; nobody can change it."""

    public: str
    """To this key the controller seals its answer. The private key follows from the credential in the machine's host folder."""
    machine: str
    """The machine's name, as it says itself: for people."""


class Answer(Frozen):
    """`joining/<host>/claim/answer`: the controller's."""

    data: str | None = None
    """What the host needs, sealed with the token's key, and again to the claimant."""
    refused: str | None = None
    """Why it gets nothing, and what to do."""


def refusal(host: str, sealed: Sealed, made_at: float, claimed_at: float) -> str | None:
    """Say why a claim comes too late; None where it is in time. Both times are ZooKeeper's, in seconds."""
    if claimed_at - made_at <= sealed.seconds:
        return None
    return (
        f"the token for {host} expired at {shown(made_at + sealed.seconds)} and was used at {shown(claimed_at)}, by ZooKeeper's clock: "
        f"{another(host)}"
    )


def is_expired(sealed: Sealed, made_at: float, now: float) -> bool:
    """Tell whether nobody can claim a token any more. Both times are ZooKeeper's, in seconds."""
    return now - made_at > sealed.seconds


def another(host: str) -> str:
    """Name the way out of a token that is of no use."""
    return f"`sluice token {host}.token --host {host}` makes another"


def shown(moment: float) -> str:
    """Write a time for people."""
    return f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%d %H:%M:%S} UTC"
