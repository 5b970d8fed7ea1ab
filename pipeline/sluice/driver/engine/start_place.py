"""Where a run of a tier that writes streams starts, as its output tells, and that its inputs still have all that is before (0055)."""

from collections.abc import Mapping, Sequence

import structlog

from sluice.driver.engine.contract import Setting
from sluice.kafka.output_tail import OutputTail
from sluice.kafka.positions import (
    RENAME_STREAM,
    WAIT_OR_RENAME_STREAM,
    OutputRecord,
    known,
    refuse_shorter,
    start,
    unbroken,
)
from sluice.kafka.reader import arrived, origin
from sluice.kafka.stream_identity import SameStreams
from sluice.kafka.truncation import Logs, cut_error, is_same

log = structlog.get_logger()


class StartPlace:
    """Reads the end of the output, and asks Kafka of the inputs."""

    def __init__(self, setting: Setting, tail: OutputTail, inputs: SameStreams) -> None:
        """Prepare; nothing is read yet."""
        self._setting, self._tail, self._inputs = setting, tail, inputs

    def find(self, own: Sequence[Mapping[str, int]]) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
        """Return where a run has to start, given where `own` ones have, and where inputs and outputs end."""
        setting = self._setting
        outputs = setting.streams.bounds(setting.outputs)
        started = [*setting.started(), *own]
        tail = self._tail.telling(outputs.ends, setting.streams.bounds(setting.inputs), started)
        inputs = setting.streams.bounds(
            setting.inputs
        )  # only now: nothing that is out was made of what came later
        now = self._inputs.ask(inputs.ends)
        done = {place: offset for place, offset in known(started, tail).items() if place in inputs.ends}
        again = self._refuse_cut(done, tail, outputs.ends, now)
        refuse_shorter(done, inputs.ends, WAIT_OR_RENAME_STREAM)
        begins = start(inputs.oldest, inputs.ends, started, tail)
        if setting.one_for_one:
            begins = unbroken(begins, inputs.ends, tail)
        return (
            begins | {place: min(at, begins[place]) for place, at in again.items()},
            inputs.ends,
            outputs.ends,
        )

    def _refuse_cut(
        self, done: dict[str, int], tail: list[OutputRecord], outputs: dict[str, int], now: Logs
    ) -> dict[str, int]:
        """Refuse to go on where records that were read were cut off; return where to read again.

        What was read after an election and before anybody knew of it is not told from that by its position. It is by what was made of it.
        """
        read = dict(done)
        for record in tail:
            if record.partition in now.epochs:
                read[record.partition] = max(read.get(record.partition, 0), record.offset + 1)
        found = self._inputs.cut(read, now)
        if found:
            kept = self._inputs.kept()
            lost = {place: at for place, at in found.items() if kept.get(place, 0) > at} or self._others(
                found, outputs
            )
            if lost:
                raise cut_error(read, lost, RENAME_STREAM)
            log.info(
                "leaders were elected; it reads again what was read from them before that was known",
                begins=found,
            )
        self._inputs.take(now, {place: read[place] for place in found if self._setting.tier.filters})
        return found

    def _others(self, found: dict[str, int], outputs: dict[str, int]) -> dict[str, int]:
        """Return those partitions that have other records behind these offsets than what was put out was made of."""
        made: dict[str, dict[int, list[tuple[int | None, str]]]] = {place: {} for place in found}
        for seen in self._tail.back_to(outputs, found):
            if seen.out.offset >= found.get(seen.out.partition, seen.out.offset + 1):
                made[seen.out.partition].setdefault(seen.out.offset, []).append((seen.arrived, seen.origin))
        return {place: at for place, at in found.items() if not self._is_same(place, made[place])}

    def _is_same(self, place: str, made: dict[int, list[tuple[int | None, str]]]) -> bool:
        """Tell whether what was put out was made of the records that are in a partition now."""
        tier = self._setting.tier
        if not made:
            return tier.filters  # no record with the name of one that was put out comes again
        outside, inputs = tier.inputs[0].columns is None, self._setting.inputs
        there = self._setting.streams.messages(place, min(made), max(made) + 1)
        return is_same(
            made,
            (
                (each.offset() or 0, arrived(each, outside=outside), origin(each, inputs, outside=outside))
                for each in there
            ),
        )
