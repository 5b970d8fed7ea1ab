"""Sources in the channel: processes that bring records from outside into a stream."""

from enum import StrEnum

from pydantic import Field

from sluice_ops.model.resources import Frozen

MOST_FAILURES = 5
"""How many failures of a source its record keeps."""
MOST_FILES = 10
"""Of how many files a source tells the position."""
EVERY_SECONDS = 10.0
"""The time between two reports of a source's figures."""


class SourceKind(StrEnum):
    """The kind of input that a source reads."""

    FILES = "files"
    HTTP = "http"


class Trouble(Frozen):
    """Why a source that runs writes nothing although records wait."""

    since: float
    """When the oldest of these records was to be written. Epoch seconds."""
    sentence: str


class Failure(Frozen):
    """The end of a source's process without a signal to stop."""

    at: float
    """When the next process found it. Epoch seconds."""
    how: str


class SourceRecord(Frozen):
    """`sources/<name>@<stream>`: a source that should run.

    Its process makes the node. A stop that a person asks for deletes it.
    """

    name: str
    stream: str
    kind: SourceKind
    where: str
    """The input: patterns of files, or the address for clients."""
    host: str
    pid: int
    identity: str
    """Differs for each process."""
    since: float
    """When the process took the source over. Epoch seconds."""
    trouble: Trouble | None = None
    ended: str | None = None
    """Why the process ended by itself; None: it runs, or died without a word."""
    failures: tuple[Failure, ...] = ()
    """The last failures of earlier processes, the newest last."""

    @property
    def id(self) -> str:
        """The name of the source's node."""
        return source_id(self.name, self.stream)


class FileFigures(Frozen):
    """How far one file is read. Unit: bytes."""

    path: str
    offset: int = Field(ge=0)
    unread: int = Field(ge=0)


class SourceFigures(Frozen):
    """`sources/<name>@<stream>/live`: the figures of a running source, in an ephemeral node.

    No process watches its value: `sluice status` and the page read it. Counts begin with the
    process.
    """

    identity: str
    """The process, as in `SourceRecord`."""
    at: float
    """When the figures were measured. Epoch seconds."""
    rate: float = Field(default=0.0, ge=0)
    """Records that Kafka has acknowledged each second, since the figures before."""
    records: int = Field(default=0, ge=0)
    last: float | None = None
    """When Kafka acknowledged last. Epoch seconds; None: not yet."""
    refused: int = Field(default=0, ge=0)
    """Transactions of which Kafka took nothing."""
    throttled: int = Field(default=0, ge=0)
    """Requests that were answered with 429."""
    waiting_bytes: int = Field(default=0, ge=0)
    """Bytes of requests, or of lines, that are not acknowledged yet."""
    files: tuple[FileFigures, ...] = ()
    """The files with the most unread bytes."""


class TakenOver(Frozen):
    """`sources/<name>@<stream>/taken`: another process has taken the source over from this one."""

    host: str
    pid: int
    sentence: str
    at: float


def source_id(name: str, stream: str) -> str:
    """Return the name of a source's node."""
    return f"{name}@{stream}"
