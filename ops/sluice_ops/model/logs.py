"""A request for the end of a process's log, and the answer. Pure.

An operator makes the request below the node of the process, and the process answers beside it. Log
lines may show records, and everybody may read the channel, so the answer is sealed to the request's
key.
"""

from typing import Self

from pydantic import Field

from sluice_ops.model.resources import Frozen

MOST_BYTES = 400_000
"""The most bytes of an answer as JSON. Sealed, the answer fits into a node of ZooKeeper."""
MOST_LINES = 10_000
"""The most lines that a request may ask for."""
CHUNK_BYTES = 65_536
"""The most bytes of a file in an answer to a follower; as JSON, up to six times as many."""
ANSWER = ".answer"
"""The name of the answer's node is that of the request, with this end."""


class Answering(Frozen):
    """The parent of the requests: the process that made it knows them."""

    name: str
    """The host, or the controller that was the first to answer."""


class LogRequest(Frozen):
    """A request for lines; ephemeral, so it ends with the session of the operator."""

    to: str
    """The host, or the controller, that has to answer."""
    key: str
    """The public key to which the answer is sealed."""
    log: str | None = None
    """The log of a unit or an executor; None: the log of the process itself."""
    lines: int = Field(default=0, ge=0, le=MOST_LINES)
    """How many last lines."""
    after: int | None = Field(default=None, ge=0)
    """Return what follows this position of an earlier answer, and not the last lines."""


class LogAnswer(Frozen):
    """The answer to a request; ephemeral, and deleted after the request is gone."""

    data: str
    """The sealed `LogPart`."""


class LogPart(Frozen):
    """A part of a log."""

    text: str = ""
    position: int = 0
    """Where the part ends: bytes of a file, or lines of a process's own log."""
    cut: bool = False
    """Whether lines at the beginning were left out, because an answer has a largest size."""
    missing: str | None = None
    """Why there is no log: the end of a sentence."""

    @classmethod
    def fitting(cls, text: str, position: int) -> Self:
        """Return a part with the end of the text, as much as an answer may have."""
        short = text[-MOST_BYTES:]
        while len(cls(text=short).model_dump_json().encode()) > MOST_BYTES:
            short = short[len(short) // 4 + 1 :]
        if len(short) < len(text):
            short = short[short.find("\n") + 1 :]
        return cls(text=short, position=position, cut=len(short) < len(text))
