"""Partitions that were added to a tier's inputs or outputs, and whether its run may use them
(decision 40).

The engine of a tier that writes streams asks `PartitionGrowth` at its checks. The engine itself
restarts the query or switches the routing epochs.
"""

import time
from collections.abc import Callable

import structlog

from sluice.driver.control.routing_epochs import (
    ALONE_SECONDS,
    LOOK_SECONDS,
    SoleWriter,
    spread_outputs,
    unused_sentence,
)
from sluice.driver.control.wait_for_services import is_away
from sluice.driver.control.write_fence import ABSENT
from sluice.driver.engine.contract import Control
from sluice.driver.engine.settings import EngineConfig
from sluice.driver.spark.workers import CapacityError
from sluice.failures import error_text
from sluice.kafka.output_tail import FEW_RECORDS
from sluice.kafka.reader import StreamError, topic_and_number
from sluice_ops.channel.client import ChannelAwayError
from sluice_ops.model.routing_epochs import RoutingEpochs, begun
from sluice_ops.model.tier import Mode

log = structlog.get_logger()

ADDED_SECONDS = 60.0
"""Time between two checks whether partitions were added to a stream."""


class PartitionGrowth:
    """Checks for added partitions, and for other runs that write the tier's records."""

    def __init__(self, config: EngineConfig, control: Control) -> None:
        """Prepare; Kafka is not asked yet."""
        self._config, self._control = config, control
        self._sole = SoleWriter()
        self._seen: dict[str, int] = {}
        """The output offsets up to which the names of runs were read."""
        self._look_at = self._look_at_inputs = 0.0

    def may_be_read(self, read: int) -> bool:
        """Tell whether the inputs have more than `read` partitions.

        A realtime tier needs a thread for each.
        """
        config, now = self._config, time.monotonic()
        if now < self._look_at_inputs:
            return False
        self._look_at_inputs = now + ADDED_SECONDS
        try:
            config.streams.renew()
            partitions = sum(config.streams.partitions(stream) for stream in config.inputs)
        except (
            StreamError
        ) as error:  # also from a broker that has just started and does not know the stream yet
            log.info(
                "Kafka does not tell whether partitions were added to the inputs", error=error_text(error)
            )
            return False
        if partitions <= read:
            return False
        try:
            if config.tier.mode is Mode.REALTIME:
                config.workers.refuse_too_few(config.tier.name, partitions)
        except CapacityError as error:
            if config.flow.unread is None:
                log.warning(
                    "partitions were added to the inputs; the tier lacks threads to read them",
                    error=str(error),
                )
            config.flow.unread = str(error)
            return False
        log.info(
            "partitions were added to the inputs; the next run reads them",
            partitions=partitions,
            before=read,
        )
        return True

    def counts(self) -> dict[str, int]:
        """Return the number of partitions of the outputs over which records are spread."""
        return {name: self._config.streams.partitions(name) for name in spread_outputs(self._config.tier)}

    def agreed_routing(self) -> RoutingEpochs:
        """Return the routing epochs that all incarnations reported; if none did, one over all
        partitions.
        """
        agreed, counts = self._control.agreed_routing(), self.counts()
        return begun(counts) if agreed is None else agreed.taking_in(counts)

    def partitions(self, routing: RoutingEpochs | None, suffix: str) -> dict[str, int]:
        """Return over how many partitions the records of each output are spread.

        In warm-up streams, whose names end with `suffix`, at most over the partitions that exist.
        """
        config = self._config
        partitions = {topic: config.streams.partitions(topic) for topic in config.outputs}
        if routing is not None:
            return partitions | routing.now
        try:  # Spark reuses the compiled code of a warm-up only if it is the same to the letter
            expected = self.agreed_routing().now
        except ChannelAwayError:
            return partitions
        return partitions | {
            topic: min(expected[topic], config.streams.partitions(topic + suffix))
            for topic in spread_outputs(config.tier)
        }

    def may_be_used(self, routing: RoutingEpochs, by: str, positions: Callable[[], dict[str, int]]) -> bool:
        """Tell whether the run `by` may write to added partitions now; if not, `flow.narrow` says
        why.
        """
        now = time.monotonic()
        if now < self._look_at:
            return False
        self._look_at = now + LOOK_SECONDS
        try:
            return self._may(now, routing, by, positions)
        except Exception as error:
            if not is_away(error):
                raise
            log.info(
                "Kafka does not tell whether partitions were added to the outputs", error=error_text(error)
            )
            return False

    def reset(self) -> None:
        """Start the checks again, after the routing epochs were switched or could not be."""
        self._sole.forget()
        self._look_at = 0.0

    def _may(
        self, now: float, routing: RoutingEpochs, by: str, positions: Callable[[], dict[str, int]]
    ) -> bool:
        flow = self._config.flow
        self._config.streams.renew()
        unused = routing.unused(self.counts())
        if not unused:
            self._look_at, flow.narrow = now + ADDED_SECONDS, None
            self._sole.forget()
            return False
        self._watch(now, by)
        hindrance = self._hindrance(now, positions)
        if hindrance is None:
            return True
        sentence = unused_sentence(unused, routing.now, hindrance)
        if flow.narrow is None:
            log.info("partitions were added to the outputs; they get no records yet", unused=sentence)
        flow.narrow = sentence
        return False

    def _watch(self, now: float, by: str) -> None:
        """Read whose records have come out since the last look; if there are many, only the last
        ones.
        """
        config = self._config
        ends = config.streams.bounds(config.outputs).ends
        starts = {
            topic_and_number(place): max(self._seen.get(place, end), end - FEW_RECORDS)
            for place, end in ends.items()
        }
        runs = {
            seen.out.by for seen in config.streams.read(starts, ends) if seen.out.tier == config.tier.name
        }
        self._seen = ends
        self._sole.note_runs(now, by, runs)

    def _hindrance(self, now: float, positions: Callable[[], dict[str, int]]) -> str | None:
        """Return why the run may not switch its routing epochs now; None if it may."""
        config = self._config
        other_writer = self._control.other_writer()
        if other_writer is not None:
            self._sole.forget()
            return other_writer
        others = self._others(now)
        if others is not None:
            return others
        inputs = config.streams.bounds(config.inputs).ends
        if sum(inputs.values()) - sum(positions().values()) > config.tier.max_offsets:
            return "it is behind, and first catches up"
        if config.tier.mode is Mode.REALTIME:
            try:
                config.workers.refuse_too_few(config.tier.name, len(inputs))
            except CapacityError as error:
                return str(error)
        return None

    def _others(self, now: float) -> str | None:
        """Return why runs that the channel does not name may still write records; None if
        none can.
        """
        sole = self._config.writers.sole_seconds()
        if sole is None:
            return ABSENT
        if sole < ALONE_SECONDS:
            return f"the control topic has to name no other writer for {ALONE_SECONDS:.0f} s"
        if not self._sole.lasts(now):
            return "records of no other one have to come out for a minute, and some of its own"
        return None
