"""The alerts' part of the leader: looks for conditions, and records what has to be told.

The record is written before a message is sent, and the delivery after it was sent. So a new leader
tells nothing twice but a message whose delivery was not recorded.
"""

import time
from collections.abc import Callable, Mapping

import structlog

from sluice_ops.channel import ANY_VERSION, Channel, Guard, NotAllowedError, Write
from sluice_ops.controller.alerting.conditions import EndedStep, Look, UnusedToken, conditions, is_unknown
from sluice_ops.controller.alerting.delivery import Delivery
from sluice_ops.controller.decide import Decision
from sluice_ops.controller.pass_state import PassInputs
from sluice_ops.controller.turn_reads import requested, tier_loads
from sluice_ops.model import paths
from sluice_ops.model.alert import AlertRecord, AlertRequests
from sluice_ops.model.change import Operation, Result
from sluice_ops.model.ids import TierName
from sluice_ops.model.joining import Sealed
from sluice_ops.model.status import Loss
from sluice_ops.planning.alerts import machine
from sluice_ops.snapshot.view import View

log = structlog.get_logger()

LOOK_SECONDS = 5.0
"""Time between two looks."""


class Alerting:
    """Looks every `LOOK_SECONDS`, and hands the messages over to the delivery."""

    def __init__(
        self,
        channel: Channel,
        delivery: Delivery,
        certificates: Callable[[], Mapping[str, float]] = dict,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Look over this channel. `certificates` tells when each file's certificate ends."""
        self._channel = channel
        self._delivery = delivery
        self._certificates = certificates
        self._clock = clock
        self._due = 0.0
        self._record: AlertRecord | None = None
        self._ended: dict[str, EndedStep] = {}

    def forget(self) -> None:
        """Read the record again: this controller has become leader."""
        self._record, self._due = None, 0.0
        self._delivery.stop()

    def stop(self) -> None:
        """Send nothing more: this controller does not lead any more."""
        self._delivery.stop()

    def turn(
        self, view: View, decision: Decision, inputs: PassInputs, epoch: Guard, *, blocked: bool = False
    ) -> None:
        """Look if it is time; write the record under the leader's epoch; then send."""
        if self._clock() < self._due:
            return
        self._due = self._clock() + LOOK_SECONDS
        before, requests = self._read(epoch)
        look = Look(
            view,
            decision,
            inputs,
            ended=self._ended_steps(),
            losses=self._losses(view),
            loads=tier_loads(self._channel, view),
            certificates=self._certificates(),
            tokens=self._tokens(),
            reports=requests.reports,
            blocked=decision.sentence if blocked else None,
        )
        channels = inputs.rules.alerts.by_name
        lowest = {name: channel.severity for name, channel in channels.items()}
        record = before
        for sent in self._delivery.results():
            if sent.channel in channels:
                record = machine.delivered(record, sent.number, sent.channel, sent.error, inputs.now)
        record = machine.advance(
            record,
            conditions(look),
            inputs.now,
            requests=requests,
            channels=lowest,
            repeat_seconds=inputs.rules.alerts.repeat_seconds,
            unknown=lambda alert: is_unknown(look, alert.subject, alert.kind),
        )
        record = machine.with_test(record, requests, inputs.now, lowest)
        if record != before:
            self._record = None  # until the write is known to be done
            version = ANY_VERSION if self._channel.exists(paths.ALERTS) else None
            self._channel.multi([epoch, Write(paths.ALERTS, record, version)])
        self._record = record
        self._delivery.offer(record.messages, channels)

    def _read(self, epoch: Guard) -> tuple[AlertRecord, AlertRequests]:
        """Return the record, and what people have requested."""
        if self._record is None:
            read = self._channel.read(paths.ALERTS, AlertRecord)
            if read is None and self._channel.exists(paths.ALERTS):
                log.warning("the alerts cannot be read; what lasts is told again", path=paths.ALERTS)
            self._record = AlertRecord() if read is None else read.value
        return self._record, requested(self._channel, paths.ALERT_REQUESTS, AlertRequests(), epoch)

    def _ended_steps(self) -> tuple[EndedStep, ...]:
        """Return the ended steps that the channel keeps; each is read once."""
        names = self._channel.children("/operations")
        new = [name for name in names if name not in self._ended]
        results = self._channel.read_many([paths.result(name) for name in new], Result)
        done = [(name, read.value) for name, read in zip(new, results, strict=True) if read is not None]
        operations = self._channel.read_many([paths.operation(name) for name, _ in done], Operation)
        for (name, result), operation in zip(done, operations, strict=True):
            if operation is not None:
                self._ended[name] = EndedStep(operation.value, result)
        self._ended = {name: self._ended[name] for name in names if name in self._ended}
        return tuple(self._ended.values())

    def _losses(self, view: View) -> dict[TierName, Loss]:
        reads = self._channel.read_many([paths.loss(name) for name in view.tiers], Loss)
        return {name: read.value for name, read in zip(view.tiers, reads, strict=True) if read is not None}

    def _tokens(self) -> dict[str, UnusedToken]:
        tokens = {}
        try:
            for host in self._channel.children(paths.JOINING):
                made_at = self._channel.made_at(paths.joining(host))
                sealed = self._channel.read(paths.joining(host), Sealed)
                if sealed and made_at is not None and not self._channel.exists(paths.claim(host)):
                    tokens[host] = UnusedToken(made_at, made_at + sealed.value.seconds)
        except NotAllowedError:  # the tree's access lists are of another version, and no host can join
            return {}
        return tokens
