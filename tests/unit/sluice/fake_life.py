"""The two sides of an incarnation's life under test: a query, and a channel follower that plays a
script of directives.
"""

import time

from sluice.driver.control.control_channel import last_of
from sluice.driver.engine.contract import Engine
from sluice_ops.model.incarnation import Directive, Receipt, State
from sluice_ops.model.incarnation import IncarnationReport as Report


class Query(Engine):
    """A query that logs the calls of its life."""

    def __init__(self, log):
        self.log = log

    def warm(self, go_on):
        pass

    def run(self):
        self.log.append("run")
        return Receipt(positions={"in/0": 0}, at=time.time())

    def hold(self):
        self.log.append("hold")
        return Receipt(positions={"in/0": 5}, at=time.time())

    def check(self):
        pass

    def caught_up(self):
        return True

    def silence(self):
        return self.gap()

    def gap(self):
        return None

    def positions(self):
        return {}

    def last_batch(self):
        return None


class ScriptedFollower:
    """The channel follower of one incarnation, with the receipts of all incarnations of
    the tier.
    """

    def __init__(self, me, script, receipts):
        self.incarnation, self.owns, self.epoch, self.hands_over = me, True, 1, False
        self.paused_workers, self.leaving = frozenset(), False
        self.active_workers, self.after_stop = None, False
        self._script, self._receipts = iter(script), receipts
        self.report = Report(state=State.STARTING, since=0, pid=1)

    def directive(self):
        step = next(self._script, Directive.EXIT)
        return step() or Directive.RUN if callable(step) else step

    def furthest_stop_receipt(self):
        return last_of(self._receipts)

    def enter(self, state, *, error=None, stopped_at=None):
        assert error is None, error
        self.report = self.report.model_copy(update={"state": state})
        if stopped_at is not None:
            self._receipts.append(stopped_at)

    def note(self, **changes):
        self.report = self.report.model_copy(update=changes)

    def wait(self, seconds):
        pass

    def read_owner(self):
        pass
