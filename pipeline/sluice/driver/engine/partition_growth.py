"""Partitions that were added to a tier's inputs, and whether its run can read them; and to its outputs, and when it may put records there.

Called by the engine of a tier that writes streams, at its looks; it begins again, or changes the ways, itself (decision record 0040).
"""

import time
from collections.abc import Callable

import structlog

from sluice.driver.control.routing_epochs import ALONE_SECONDS, LOOK_SECONDS, Alone, spread, unused_sentence
from sluice.driver.control.wait_for_services import is_away
from sluice.driver.control.write_fence import ABSENT
from sluice.driver.engine.contract import Setting
from sluice.driver.spark.workers import CapacityError, refuse_too_few
from sluice.failures import error_text
from sluice.kafka.output_tail import FEW_RECORDS
from sluice.kafka.reader import StreamError, split
from sluice_ops.channel.client import ChannelAwayError
from sluice_ops.model.routing_epochs import Ways, begun
from sluice_ops.model.tier import Mode

log = structlog.get_logger()

ADDED_SECONDS = 60.0
"""Between two looks for partitions that were added to a stream."""


class Added:
    """Looks for them, and for who else puts the tier's records."""

    def __init__(self, setting: Setting) -> None:
        """Prepare; nothing is asked yet."""
        self._setting = setting
        self._alone = Alone()
        self._seen: dict[str, int] = {}
        """Up to here it has looked who puts records out."""
        self._look_at = self._look_at_inputs = 0.0

    def may_be_read(self, read: int) -> bool:
        """Tell whether the inputs of a realtime tier have more partitions than so many, and it has a thread for each."""
        setting, now = self._setting, time.monotonic()
        if now < self._look_at_inputs:
            return False
        self._look_at_inputs = now + ADDED_SECONDS
        try:
            setting.streams.renew()
            partitions = sum(setting.streams.partitions(stream) for stream in setting.inputs)
        except StreamError as error:  # also where a broker that has just begun does not know the stream yet
            log.info("whether partitions were added to its inputs is not known", error=error_text(error))
            return False
        if partitions <= read:
            return False
        try:
            refuse_too_few(setting.tier.name, partitions, setting.workers.awake, setting.workers.threads)
        except CapacityError as error:
            if setting.flow.unread is None:
                log.warning("partitions were added that it cannot read yet", error=str(error))
            setting.flow.unread = str(error)
            return False
        log.info(
            "partitions were added; it begins again and reads them too", partitions=partitions, before=read
        )
        return True

    def counts(self) -> dict[str, int]:
        """Return how many partitions there are of the outputs where that matters."""
        return {name: self._setting.streams.partitions(name) for name in spread(self._setting.tier)}

    def heard(self) -> Ways:
        """Return the ways that hold, as all have said; where nobody has, over all partitions that there are."""
        heard, counts = self._setting.ways.heard(), self.counts()
        return begun(counts) if heard is None else heard.taking_in(counts)

    def partitions(self, ways: Ways | None, suffix: str) -> dict[str, int]:
        """Return over how many of each output records are spread; in a warm-up's streams, which end so, over no more than there are."""
        setting = self._setting
        partitions = {topic: setting.streams.partitions(topic) for topic in setting.outputs}
        if ways is not None:
            return partitions | ways.now
        try:  # the code of a warm-up serves the run only where it is the same to the letter
            expected = self.heard().now
        except ChannelAwayError:
            return partitions
        return partitions | {
            topic: min(expected[topic], setting.streams.partitions(topic + suffix))
            for topic in spread(setting.tier)
        }

    def may_be_used(self, ways: Ways, by: str, positions: Callable[[], dict[str, int]]) -> bool:
        """Tell whether there are any that the run `by` may use now; have it said what hinders that."""
        now = time.monotonic()
        if now < self._look_at:
            return False
        self._look_at = now + LOOK_SECONDS
        try:
            return self._may(now, ways, by, positions)
        except Exception as error:
            if not is_away(error):
                raise
            log.info("whether partitions were added to its outputs is not known", error=error_text(error))
            return False

    def used(self) -> None:
        """Begin anew: others hold now, or could not be agreed on."""
        self._alone.forget()
        self._look_at = 0.0

    def _may(self, now: float, ways: Ways, by: str, positions: Callable[[], dict[str, int]]) -> bool:
        flow = self._setting.flow
        self._setting.streams.renew()
        unused = ways.unused(self.counts())
        if not unused:
            self._look_at, flow.narrow = now + ADDED_SECONDS, None
            self._alone.forget()
            return False
        self._watch(now, by)
        hindered = self._hindered(now, positions)
        if hindered is None:
            return True
        sentence = unused_sentence(unused, ways.now, hindered)
        if flow.narrow is None:
            log.info("partitions were added to its outputs", unused=sentence)
        flow.narrow = sentence
        return False

    def _watch(self, now: float, by: str) -> None:
        """Look whose records have come out since the last look; of many, at the last ones."""
        setting = self._setting
        ends = setting.streams.bounds(setting.outputs).ends
        starts = {
            split(place): max(self._seen.get(place, end), end - FEW_RECORDS) for place, end in ends.items()
        }
        runs = {
            seen.out.by for seen in setting.streams.read(starts, ends) if seen.out.tier == setting.tier.name
        }
        self._seen = ends
        self._alone.look(now, by, runs)

    def _hindered(self, now: float, positions: Callable[[], dict[str, int]]) -> str | None:
        """Say why the run cannot take other ways now; None when it can."""
        setting = self._setting
        company = setting.ways.company()
        if company is not None:
            self._alone.forget()
            return company
        others = self._others(now)
        if others is not None:
            return others
        inputs = setting.streams.bounds(setting.inputs).ends
        if sum(inputs.values()) - sum(positions().values()) > setting.tier.max_offsets:
            return "it is behind, and first catches up"
        if setting.tier.mode is Mode.REALTIME:
            try:
                refuse_too_few(setting.tier.name, len(inputs), setting.workers.awake, setting.workers.threads)
            except CapacityError as error:
                return str(error)
        return None

    def _others(self, now: float) -> str | None:
        """Say why runs that nobody is told of may still put records; None when none can."""
        sole = self._setting.writers.sole()
        if sole is None:
            return ABSENT
        if sole < ALONE_SECONDS:
            return f"the control topic has to name no other writer for {ALONE_SECONDS:.0f} s"
        if not self._alone.lasts(now):
            return "records of no other one have to come out for a minute, and some of its own"
        return None
