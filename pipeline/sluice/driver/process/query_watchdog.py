"""Reports a query whose own thread hangs: input waits, no task runs, and no batch ends.

That thread plans a batch, or writes one. `task_watchdog` sees tasks only, and the watchdog of the
working loop sees another thread.
"""

import sys
import threading
import time
import traceback
from collections.abc import Mapping
from typing import TYPE_CHECKING

import structlog

from sluice.driver.counters import Flow, HungTask
from sluice.driver.process.task_progress import MOST_SECONDS, batch_told_after
from sluice_ops.model.assignment import HUNG_SINCE

if TYPE_CHECKING:
    from collections.abc import Collection

    from sluice.api.declarations import Tier

log = structlog.get_logger()


class QueryWatchdog:
    """Watches the query of one incarnation."""

    def __init__(self, tier: "Tier", flow: Flow) -> None:
        """Nothing was looked at yet."""
        self._tier, self._flow = tier.name, flow
        self._told_after = batch_told_after(tier.hangs_after)
        self._positions: Mapping[str, int] = {}
        self._seconds = 0.0
        self._looked = time.monotonic()
        self._since: str | None = None
        """Since when the reported query has hung."""

    def forget(self) -> None:
        """Start again: the tier does not run, or another incarnation owns it."""
        self._positions, self._seconds, self._since = {}, 0.0, None

    def check(
        self, running: "Collection[int]", ends: Mapping[str, int], positions: Mapping[str, int]
    ) -> HungTask | None:
        """Return the report if the query hangs; `running` are its tasks, `positions` its inputs'.

        It does not hang while the tier waits for a service, or is throttled.
        """
        now = time.monotonic()
        passed, self._looked = min(now - self._looked, MOST_SECONDS), now
        waits = any(end > positions.get(name, end) for name, end in ends.items())
        excused = running or self._flow.metered or self._flow.waits_for is not None
        if not waits or excused or positions != self._positions:
            self._positions, self._seconds, self._since = dict(positions), 0.0, None
            return None
        self._seconds += passed
        return None if self._seconds < self._told_after else self._report()

    def _report(self) -> HungTask:
        is_new = self._since is None
        since = self._since = self._since or time.strftime(
            "%H:%M:%S UTC", time.gmtime(time.time() - self._seconds)
        )
        sentence = (
            f"{HUNG_SINCE} {since}: input waits, no task runs, and no batch has ended; "
            "the driver's log shows where its threads stand; "
            f"hand the tier over: sluice migrate {self._tier} HOST"
        )
        if is_new:
            log.warning("the query hangs", query=sentence, stacks=_stacks())
        return HungTask(self._seconds, sentence)


def _stacks() -> str:
    """Return the stacks of all Python threads of the driver."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "\n".join(
        f"{names.get(number, number)}:\n{''.join(traceback.format_stack(frame))}"
        for number, frame in sys._current_frames().items()  # noqa: SLF001 — no public way
    )
