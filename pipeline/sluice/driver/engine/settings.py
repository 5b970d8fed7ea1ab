"""What one engine works with, fixed for the life of its incarnation: `EngineConfig`."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from sluice.api.declarations import Tier
from sluice.driver.control.write_fence import Unfenced, WriterFence
from sluice.driver.counters import Flow
from sluice.driver.spark.workers import Workers
from sluice_ops.model.incarnation import STATE_PARTITIONS
from sluice_ops.model.savepoint import StartFrom
from sluice_ops.site.site_file import S3Config

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sluice.driver.state.checkpoint_store import Depot
    from sluice.kafka.reader import Streams
    from sluice.kafka.stream_identity import Identities


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """The tier, the services and the counters that an engine works with."""

    session: "SparkSession"
    tier: Tier
    incarnation: int
    streams: "Streams"
    kafka: str
    postgres: str
    home: Path
    """The folder that all hosts share."""
    hops_to_end: int = 0
    """How many hops the tier is from the pipeline's end."""
    one_for_one: bool = False
    """Whether the transform makes exactly one output record of each input record, so that complete
    output can be counted.
    """
    partitions: int = STATE_PARTITIONS
    """The number of partitions of the tier's state, if it has state."""
    release: str | None = None
    """The release whose code the incarnation runs."""
    packed_lineage: bool = True
    """Whether records carry their lineage in one header, not in the five of former versions."""
    holds: tuple[str, ...] | None = None
    """The state plan of that release, operator by operator; None if unknown."""
    savepoint: StartFrom | None = None
    """The savepoint from which the tier was started last; None: never from one."""
    depot: "Depot | None" = None
    """Where the checkpoints of the tier's state are; None: in the tier's own folder."""
    s3: S3Config = field(default_factory=S3Config)
    """The site's S3 service, in which a sink may write files."""
    workers: Workers = field(default_factory=Workers)
    flow: Flow = field(default_factory=Flow)
    """The counters that the engine increases."""
    identities: "Identities | None" = None
    """Answers with the ids of the input topics; None: the ids are not checked."""
    writers: WriterFence = field(default_factory=Unfenced)
    """The right to write the tier's streams."""

    @property
    def checkpoints(self) -> Path:
        """The tier's own folder in the home that all hosts share."""
        return self.home / "checkpoints" / self.tier.name

    @property
    def inputs(self) -> list[str]:
        """The topics that the tier reads."""
        return [stream.name for stream in self.tier.inputs]

    @property
    def outputs(self) -> list[str]:
        """The topics that the tier writes, quarantine included."""
        return self.tier.written
