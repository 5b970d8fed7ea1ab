"""A simulated site whose controller also looks for alerts."""

from copy import deepcopy
from dataclasses import replace
from functools import cache

from simulation.world import RULES, World

from sluice_ops.channel import Guard
from sluice_ops.controller.alerting.turn import Alerting
from sluice_ops.controller.pass_state import PassInputs
from sluice_ops.model import paths
from sluice_ops.model.alert import AlertRecord, AlertSettings
from sluice_ops.model.change import EpochRecord
from sluice_ops.model.incarnation import IncarnationReport

CHANNELS = AlertSettings(channels=({"url": "json://ops.example"},), airflow="https://airflow.example")


class FakeDelivery:
    """Keeps what it is offered; `take` is what a channel does."""

    def __init__(self):
        self.offered, self.sent, self.waiting = (), [], []

    def offer(self, messages, channels):
        self.offered, self.names = tuple(messages), tuple(channels)

    def results(self):
        results, self.waiting = self.waiting, []
        return results

    def stop(self):
        self.offered, self.waiting = (), []


class Site(World):
    """A world with alerts."""

    def __init__(self, settings=CHANNELS, rules=RULES, **more):
        super().__init__(rules=replace(rules, alerts=settings), **more)
        self.channel.put(paths.EPOCH, EpochRecord(epoch=1, leader="c1"))
        self.delivery, self.certificates, self.blocked = FakeDelivery(), {}, False
        self.take_office()

    def take_office(self):
        """Let a new controller lead, which knows only the channel."""
        self.alerting = Alerting(self.channel, self.delivery, self.known_certificates, self.clock)

    def known_certificates(self):
        return self.certificates

    def controller_pass(self):
        wrote = super().controller_pass()
        view, decision = self.decide()
        guard = Guard(paths.EPOCH, self.channel.version(paths.EPOCH))
        self.alerting.turn(view, decision, self.inputs(), guard, blocked=self.blocked)
        return wrote

    def inputs(self):
        return PassInputs(now=self.wall(), lost=frozenset(), rules=self.rules)

    @property
    def record(self):
        read = self.channel.read(paths.ALERTS, AlertRecord)
        return AlertRecord() if read is None else read.value

    @property
    def fired(self):
        """The keys of the alerts that have lasted long enough."""
        return {key for key, alert in self.record.alerts.items() if alert.fired_at is not None}

    def alert(self, kind):
        """Return the only alert of a kind."""
        (found,) = [alert for alert in self.record.alerts.values() if alert.kind == kind]
        return found

    def wait(self, seconds):
        """Let time pass: the first seconds one by one, the rest in larger steps."""
        for _ in range(min(int(seconds), 20)):
            self.tick()
        for _ in range(int((seconds - 20) / 5)):
            self.tick(5.0)

    def report(self, name, **fields):
        """Let the driver that owns a tier report other values."""
        node = paths.report(name, self.owner(name).owner)
        before = self.channel.read(node, IncarnationReport).value
        self.channel.put(node, before.model_copy(update=fields))


@cache
def _settled():
    site = Site()
    return site.bring_up()


def settled():
    """Return a copy of a site whose pipeline runs, which is started only once."""
    return deepcopy(_settled())
