"""Where a run of a tier that writes streams starts, and whether its inputs still have the records
before (decision 55).
"""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import structlog

from sluice.driver.engine.contract import Control
from sluice.driver.engine.settings import EngineConfig
from sluice.kafka.output_tail import OutputTail
from sluice.kafka.positions import (
    RENAME_STREAM,
    WAIT_OR_RENAME_STREAM,
    OutputRecord,
    known_output,
    output_without_gap,
    refuse_shorter,
    start,
)
from sluice.kafka.reader import arrived, origin
from sluice.kafka.stream_identity import SameStreams
from sluice.kafka.truncation import Logs, cut_error, is_same

log = structlog.get_logger()

Start: TypeAlias = tuple[dict[str, int], dict[str, int], dict[str, int]]
"""Where a run has to start, and the ends of inputs and outputs."""


class StartPlace:
    """Finds the start in the end of the output, and checks the inputs in Kafka."""

    def __init__(self, config: EngineConfig, control: Control, tail: OutputTail, inputs: SameStreams) -> None:
        """Prepare; nothing is read yet."""
        self._config, self._control, self._tail, self._inputs = config, control, tail, inputs

    def find(self, earlier_starts: Sequence[Mapping[str, int]]) -> Start:
        """Return where a run has to start, and the ends of inputs and outputs.

        `earlier_starts` are the starts of this incarnation's earlier runs. RecordsGoneError:
        records before the start were lost, or other records have their offsets.
        """
        config = self._config
        outputs = config.streams.bounds(config.outputs)
        started = [*self._control.complete_positions(), *earlier_starts]
        tail = self._tail.enough_to_start(outputs.ends, config.streams.bounds(config.inputs), started)
        # asked only now: no record of the output was made of an input record that came later
        inputs = config.streams.bounds(config.inputs)
        logs = self._inputs.ask(inputs.ends)
        done = {
            place: offset for place, offset in known_output(started, tail).items() if place in inputs.ends
        }
        again = self._refuse_cut(done, tail, outputs.ends, logs)
        refuse_shorter(done, inputs.ends, WAIT_OR_RENAME_STREAM)
        begins = start(inputs.oldest, inputs.ends, started, tail)
        if config.one_for_one:
            begins = output_without_gap(begins, inputs.ends, tail)
        return (
            begins | {place: min(at, begins[place]) for place, at in again.items()},
            inputs.ends,
            outputs.ends,
        )

    def _refuse_cut(
        self, done: dict[str, int], tail: list[OutputRecord], outputs: dict[str, int], logs: Logs
    ) -> dict[str, int]:
        """Raise RecordsGoneError if records that were read were cut off; return the offsets to read
        again from.

        A position alone does not tell whether records were read after an election that was not
        known yet. The records in the output that were made of them do.
        """
        read = dict(done)
        for record in tail:
            if record.partition in logs.epochs:
                read[record.partition] = max(read.get(record.partition, 0), record.offset + 1)
        cut = self._inputs.cut(read, logs)
        if cut:
            kept = self._inputs.kept()
            lost = {place: at for place, at in cut.items() if kept.get(place, 0) > at} or self._changed(
                cut, outputs
            )
            if lost:
                raise cut_error(read, lost, RENAME_STREAM)
            log.info(
                "leaders of input partitions were elected; "
                "records read before the election was known are read again",
                begins=cut,
            )
        self._inputs.take(logs, {place: read[place] for place in cut if self._config.tier.filters})
        return cut

    def _changed(self, cut: dict[str, int], outputs: dict[str, int]) -> dict[str, int]:
        """Return the partitions in which other records follow these offsets than the output was
        made of.
        """
        made: dict[str, dict[int, list[tuple[int | None, str]]]] = {place: {} for place in cut}
        for seen in self._tail.back_to(outputs, cut):
            if seen.out.offset >= cut.get(seen.out.partition, seen.out.offset + 1):
                made[seen.out.partition].setdefault(seen.out.offset, []).append((seen.arrived, seen.origin))
        return {place: at for place, at in cut.items() if not self._is_same(place, made[place])}

    def _is_same(self, place: str, made: dict[int, list[tuple[int | None, str]]]) -> bool:
        """Tell whether the output was made of the records that are in the partition now."""
        tier = self._config.tier
        if not made:
            return tier.filters  # no record with the name of an output record comes again
        outside, inputs = tier.inputs[0].columns is None, self._config.inputs
        messages = self._config.streams.messages(place, min(made), max(made) + 1)
        return is_same(
            made,
            (
                (
                    message.offset() or 0,
                    arrived(message, outside=outside),
                    origin(message, inputs, outside=outside),
                )
                for message in messages
            ),
        )
